#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

int vfork_and_die(void)
{
    volatile int *volatile nowhere = 0;
    int status = 0;
    pid_t child = vfork();
    if (child == 0) {
        *nowhere = 1;
        _exit(3);
    }
    waitpid(child, &status, 0);
    return status;
}

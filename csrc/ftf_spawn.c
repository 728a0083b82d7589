/* CONTEXT: SIGNAL. See ftf_spawn.h. */
#include "ftf_spawn.h"

#include "ftf_arch.h"

#include <linux/close_range.h>
#include <sys/time.h>

struct exec_request {
    char *const *argv;
    char *const *env;
    int output_fd;
    int error_fd;
    int seconds; /* of life, 0: no limit */
};

static void exec_main(void *argument)
{
    const struct exec_request *request = argument;
    uint64_t none = 0;
    int null_fd = (int)ftf_open("/dev/null", O_RDWR, 0);
    ftf_syscall2(SYS_setpgid, 0, 0); /* so that its own children can be ended with it */
    /* Standard descriptors first to high numbers: the sources may be among 0 to 2. */
    long output = ftf_syscall3(SYS_fcntl, request->output_fd >= 0 ? request->output_fd : null_fd, F_DUPFD, 3);
    long error = ftf_syscall3(SYS_fcntl, request->error_fd >= 0 ? request->error_fd : null_fd, F_DUPFD, 3);
    ftf_syscall3(SYS_dup3, null_fd, 0, 0);
    ftf_syscall3(SYS_dup3, output >= 0 ? output : request->output_fd, 1, 0); /* no descriptor free: straight */
    ftf_syscall3(SYS_dup3, error >= 0 ? error : request->error_fd, 2, 0);
    ftf_syscall3(SYS_close_range, 3, ~0u, 0);
    for (int sig = 1; sig < 32; sig++) { /* exec keeps ignored signals ignored */
        struct ftf_action action = {0};
        ftf_sigaction(sig, &action, 0);
    }
    ftf_sigprocmask(SIG_SETMASK, &none, 0);
    struct rlimit no_core = {0, 0};
    ftf_syscall4(SYS_prlimit64, 0, RLIMIT_CORE, &no_core, 0);
    struct itimerval life = {{0, 0}, {request->seconds, 0}}; /* survives exec (man execve) */
    ftf_syscall3(SYS_setitimer, ITIMER_REAL, &life, 0);
    ftf_syscall3(SYS_execve, request->argv[0], request->argv, request->env);
    ftf_exit_process(127);
}

long ftf_spawn(char *const argv[], char *const env[], int output_fd, int error_fd, struct ftf_stack stack)
{
    struct exec_request request = {argv, env, output_fd, error_fd, 0};
    return ftf_clone(CLONE_VM | CLONE_VFORK | CLONE_UNTRACED, stack.base + stack.size, exec_main, &request, 0);
}

/* ---- a process that is nobody's child of ours ---- */

struct detached_request {
    struct exec_request exec;
    void *stack_top;
    long pid;
};

static void detached_main(void *argument)
{
    struct detached_request *request = argument;
    request->pid = ftf_clone(CLONE_VM | CLONE_VFORK | CLONE_UNTRACED, request->stack_top, exec_main, &request->exec, 0);
}

long ftf_spawn_detached(char *const argv[], char *const env[], int output_fd, int seconds, struct ftf_stack stack)
{
    struct detached_request request = {{argv, env, output_fd, -1, seconds}, stack.base + stack.size / 2, -EAGAIN};
    int status;
    long between =
        ftf_clone(CLONE_VM | CLONE_VFORK | CLONE_UNTRACED, stack.base + stack.size, detached_main, &request, 0);
    if (between < 0)
        return between;
    while (ftf_wait4((int)between, &status, __WALL) == -EINTR)
        ;
    return request.pid;
}

bool ftf_spawn_ended(int pid)
{
    char path[40], text[512];
    int status;
    if (ftf_wait4(pid, &status, __WALL | WNOHANG) ==
        pid) /* we are the reaper here, as the first process of a container is */
        return true;
    struct ftf_text name = {path, sizeof path - 1, 0, false};
    ftf_puts(&name, "/proc/");
    ftf_put_decimal(&name, pid);
    ftf_puts(&name, "/stat");
    path[name.used] = 0;
    int fd = (int)ftf_open(path, O_RDONLY | O_CLOEXEC, 0);
    long got = fd < 0 ? 0 : ftf_read(fd, text, sizeof text);
    if (fd >= 0)
        ftf_close(fd);
    long at = got - 2;
    while (at > 0 && text[at - 1] != ')') /* the name before it may hold anything */
        at--;
    return fd == -ENOENT || (fd >= 0 && got <= 0) || (at > 0 && (text[at + 1] == 'Z' || text[at + 1] == 'X'));
}

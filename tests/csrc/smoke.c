/* The handler without Python: installs it from plain C and dies as told.

       smoke DIRECTORY KIND        KIND: null-read, null-call, wild-stack, overflow, abort, sent, thread

   Prints the addresses of the two functions that must appear among the native frames, innermost first. Also
   cross-compiled and run in an emulator, where no Python of the target is at hand. */
#include "ftf_altstack.h"
#include "ftf_install.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Never inlined and never a tail call: each must stand on the stack when the other crashes. Aligned, so that an address
   tells its function (test_smoke.py, FUNCTION_BYTES). */
#define KEEP __attribute__((noinline, noclone, used, aligned(1024)))

static volatile int *volatile nowhere;
static void (*volatile no_function)(void);
static void (*volatile ending)(void) = abort; /* called directly, gcc moves the call out into innermost.cold */

KEEP int innermost(const char *kind)
{
    if (strcmp(kind, "null-read") == 0 || strcmp(kind, "thread") == 0)
        return *nowhere + 1;
    if (strcmp(kind, "null-call") == 0)
        no_function();
    if (strcmp(kind, "abort") == 0)
        ending();
    if (strcmp(kind, "sent") == 0)
        kill(getpid(), SIGSEGV);
    if (strcmp(kind, "wild-stack") == 0) {
#if defined(__x86_64__)
        __asm__ volatile("mov $0x1000, %%rsp\n push %%rax" ::: "memory");
#else
        __asm__ volatile("mov x9, #0x1000\n mov sp, x9\n str x0, [sp]" ::: "x9", "memory");
#endif
    }
    if (strcmp(kind, "overflow") == 0) {
        volatile char room[4096];
        room[0] = 1;
        return innermost(kind) + room[0];
    }
    return 0;
}

KEEP int outer(const char *kind) { return innermost(kind) + 1; }

static void *on_thread(void *kind)
{
    ftf_altstack_check();
    outer(kind);
    return 0;
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    static const char members[] = "\"job\": {\"host\": \"smoke\"},\n";
    char *nothing[] = {0};
    struct ftf_config config = {
        .directory = words[1],
        .stem = "smoke",
        .static_members = members,
        .static_size = sizeof members - 1,
        .helper_argv = nothing,
        .helper_env = nothing,
        .inventory_argv = nothing,
        .memory_usage_file = "",
        .memory_limit_file = "",
    };
    const char *failed = "?";
    int result = ftf_install(&config, &failed);
    if (result != 0) {
        fprintf(stderr, "install: %s: %s\n", failed, strerror(-result));
        return 3;
    }
    printf("%p %p\n", (void *)(uintptr_t)innermost, (void *)(uintptr_t)outer);
    fflush(stdout);
    if (strcmp(words[2], "thread") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, 0, on_thread, words[2]) == 0)
            pthread_join(thread, 0);
    } else
        outer(words[2]);
    return 4;
}

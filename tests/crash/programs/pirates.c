/* Libraries that take the fault signals after us: one that chains, one that uses signal(), one that lies.
 *
 * Modelled on what was met in the field: UCX and absl chain or not by option, old code uses signal() and raises
 * again, an LLVM handler ended the process with status 0 (triton#4129). */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const int stolen[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
#define STOLEN (sizeof stolen / sizeof *stolen)
static struct sigaction before[64];

static void say(const char *text)
{
    if (write(2, text, strlen(text)) < 0)
        _exit(98);
}

static void chaining(int number, siginfo_t *info, void *context)
{
    say("pirate: chaining\n");
    const struct sigaction *next = &before[number];
    if (next->sa_flags & SA_SIGINFO) {
        next->sa_sigaction(number, info, context);
        return;
    }
    if (next->sa_handler != SIG_DFL && next->sa_handler != SIG_IGN) {
        next->sa_handler(number);
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((visibility("default"))) void pirate_sigaction(void)
{
    struct sigaction action = {.sa_sigaction = chaining, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    for (size_t i = 0; i < STOLEN; i++)
        sigaction(stolen[i], &action, &before[stolen[i]]);
}

static void raising(int number)
{
    say("pirate: signal\n");
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((visibility("default"))) void pirate_signal(void)
{
    for (size_t i = 0; i < STOLEN; i++)
        signal(stolen[i], raising);
}

static void lying(int number)
{
    (void)number;
    say("pirate: exit 0\n");
    _exit(0);
}

__attribute__((visibility("default"))) void pirate_exit0(void)
{
    for (size_t i = 0; i < STOLEN; i++)
        signal(stolen[i], lying);
}

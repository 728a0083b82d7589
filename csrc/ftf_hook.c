/* CONTEXT: SIGNAL. See ftf_hook.h. */
#include "ftf_hook.h"

#include "ftf_fmt.h"
#include "ftf_sys.h"

struct ftf_hook ftf_hooks[FTF_MAX_HOOKS];
void (*ftf_hook_malloc)(void);

static void misbehave(int kind)
{
    switch (kind) {
    case FTF_HOOK_HANG:
        for (;;)
            ftf_sleep_ms(1000);
    case FTF_HOOK_MALLOC:
        if (ftf_hook_malloc)
            ftf_hook_malloc();
        break;
    case FTF_HOOK_KILL:
        ftf_kill(ftf_getpid(), SIGKILL); /* in the sandbox: only the child */
        break;
    case SIGSEGV: {
        volatile int *volatile nowhere = (volatile int *)8;
        *nowhere = 1;
        break;
    }
    case SIGILL: __builtin_trap();
    default: ftf_tgkill(ftf_getpid(), ftf_gettid(), kind);
    }
}

void ftf_hook_run(const char *step)
{
    for (int i = 0; i < FTF_MAX_HOOKS; i++)
        if (ftf_hooks[i].kind != 0 && ftf_string_equal(ftf_hooks[i].step, step))
            misbehave(ftf_hooks[i].kind);
}

bool ftf_hook_is_set(const char *step)
{
    for (int i = 0; i < FTF_MAX_HOOKS; i++)
        if (ftf_hooks[i].kind != 0 && ftf_string_equal(ftf_hooks[i].step, step))
            return true;
    return false;
}

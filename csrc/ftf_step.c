/* CONTEXT: SIGNAL. See ftf_step.h. */
#include "ftf_step.h"

#include "ftf_arch.h"
#include "ftf_hook.h"

#include <sys/prctl.h>

static int recovered_cause;

static uint64_t mask_for_steps(void)
{
    uint64_t mask = ~UINT64_C(0);
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++)
        mask &= ~ftf_signal_bit(ftf_fault_signals[i]);
    if (ftf.hold_signal)
        mask &= ~ftf_signal_bit(ftf.hold_signal);
    return mask;
}

void ftf_deadline_create(void)
{
    struct sigevent event = {0};
    int id = -1;
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = ftf.hold_signal;
    event._sigev_un._tid = ftf_gettid();
    ftf.deadline_timer = ftf.hold_signal && ftf_syscall3(SYS_timer_create, CLOCK_MONOTONIC, &event, &id) == 0 ? id : -1;
}

void ftf_deadline_delete(void)
{
    if (ftf.deadline_timer >= 0)
        ftf_syscall1(SYS_timer_delete, ftf.deadline_timer);
    ftf.deadline_timer = -1;
}

static void deadline_set(int ms)
{
    struct itimerspec at = {{0, 0}, {ms / 1000, (long)(ms % 1000) * 1000000}};
    if (ftf.deadline_timer >= 0)
        ftf_syscall4(SYS_timer_settime, ftf.deadline_timer, 0, &at, 0);
}

FTF_NOINLINE int ftf_step_guarded(void (*run)(void), int deadline_ms)
{
    uint64_t mask = mask_for_steps();
    ftf_sigprocmask(SIG_SETMASK, &mask, 0);
    if (__builtin_setjmp(ftf.recovery)) {
        ftf.recovery_armed = false;
        deadline_set(0);
        return recovered_cause;
    }
    ftf.recovery_armed = true;
    deadline_set(deadline_ms);
    run();
    ftf.recovery_armed = false;
    deadline_set(0);
    return FTF_OK;
}

void ftf_step_recover(int cause)
{
    if (!ftf.recovery_armed)
        return;
    ftf.recovery_armed = false;
    recovered_cause = cause;
    __builtin_longjmp(ftf.recovery, 1);
}

void ftf_step_leave(void)
{
    if (ftf.in_sandbox)
        ftf_exit_process(0);
    ftf_step_recover(FTF_OK);
    ftf_exit_process(127); /* not reached: a step runs either way */
}

/* ---- the sandbox child ---- */

static void sandbox_fault(int sig, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    if (ftf.sandbox_rescue)
        ftf.sandbox_rescue();
    ftf_exit_process(64 + sig);
}

static void sandbox_main(void *argument)
{
    void (*run)(void) = (void (*)(void))argument;
    struct ftf_action action = {sandbox_fault, SA_SIGINFO | SA_ONSTACK | ftf.restorer_flag, ftf.restorer, ~UINT64_C(0)};
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++)
        ftf_sigaction(ftf_fault_signals[i], &action, 0);
    stack_t stack = {.ss_sp = ftf.sandbox_signal_stack.base, .ss_size = ftf.sandbox_signal_stack.size};
    ftf_sigaltstack(&stack, 0);
    /* Before Linux 5.16 a process that dumps core takes along everybody who shares its memory (fs/exec.c, zap_threads);
       a limit of 1 also stops piped dumps (fs/coredump.c). The limit is the child's own. */
    struct rlimit core;
    if (ftf_syscall4(SYS_prlimit64, 0, RLIMIT_CORE, 0, &core) == 0) {
        core.rlim_cur = core.rlim_max < 1 ? core.rlim_max : 1;
        ftf_syscall4(SYS_prlimit64, 0, RLIMIT_CORE, &core, 0);
    }
    ftf_syscall2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    uint64_t mask = mask_for_steps();
    ftf_sigprocmask(SIG_SETMASK, &mask, 0);
    run();
}

static bool sandbox_ended(int64_t until_ns)
{
    while (__atomic_load_n(&ftf.sandbox_alive, __ATOMIC_ACQUIRE) != 0) {
        int64_t left = until_ns - ftf_clock_ns(CLOCK_MONOTONIC);
        if (left <= 0)
            return false;
        struct timespec timeout = {left / 1000000000, left % 1000000000};
        /* Not FUTEX_PRIVATE: the kernel wakes the shared key at the child's end (kernel/fork.c, mm_release). */
        ftf_futex(&ftf.sandbox_alive, FUTEX_WAIT, 1, &timeout);
    }
    return true;
}

/* The child that is at its end, or was told so by SIGKILL. One that sits in a system call of a dead file system does not
   end before that answers: it is left behind rather than waited for. */
static long sandbox_reap(int pid, int *status)
{
    int64_t until = ftf_clock_ns(CLOCK_MONOTONIC) + 500000000;
    for (;;) {
        long waited = ftf_wait4(pid, status, __WALL | WNOHANG);
        if ((waited != 0 && waited != -EINTR) || ftf_clock_ns(CLOCK_MONOTONIC) >= until)
            return waited;
        struct timespec pause = {0, 100000};
        ftf_syscall2(SYS_nanosleep, &pause, 0);
    }
}

static FTF_NOINLINE int sandbox_run(void (*run)(void), int deadline_ms, bool share_files)
{
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    ftf.sandbox_alive = 1;
    ftf.sandbox_rescue = 0;
    ftf.in_sandbox = true;
    long pid =
        ftf_clone(CLONE_VM | CLONE_UNTRACED | CLONE_CHILD_CLEARTID | (share_files ? CLONE_FILES : 0),
                  ftf.sandbox_stack.base + ftf.sandbox_stack.size, sandbox_main, (void *)run, &ftf.sandbox_alive);
    if (pid < 0) {
        ftf.in_sandbox = false;
        return (int)pid;
    }
    bool cut = false;
    if (!sandbox_ended(started + (int64_t)deadline_ms * 1000000)) {
        cut = true;
        if (ftf.sandbox_rescue) { /* let it save what it has */
            ftf_kill((int)pid, SIGABRT);
            sandbox_ended(ftf_clock_ns(CLOCK_MONOTONIC) + 100000000);
        }
        ftf_kill((int)pid, SIGKILL);
        sandbox_ended(ftf_clock_ns(CLOCK_MONOTONIC) + 300000000);
    }
    int status = 0;
    long waited = sandbox_reap((int)pid, &status);
    ftf.in_sandbox = false;
    if (cut)
        return FTF_CUT;
    if (waited != pid)
        return FTF_OK; /* reaped by somebody else: what it left in memory is all we know */
    if ((status & 0x7f) != 0)
        return (status & 0x7f) == SIGKILL ? FTF_DIED : status & 0x7f;
    int code = status >> 8 & 0xff;
    return code >= 64 ? code - 64 : FTF_OK;
}

int ftf_step_sandboxed(void (*run)(void), int deadline_ms, bool share_files)
{
    uint64_t mask = mask_for_steps();
    ftf_sigprocmask(SIG_SETMASK, &mask, 0);
    int cause = ftf.no_sandbox ? -ENOSYS : sandbox_run(run, deadline_ms, share_files);
    if (cause >= 0)
        return cause;
    return ftf_step_guarded(run, deadline_ms);
}

/* ---- the list of stages ---- */

void ftf_stage_add(const char *name, int64_t ns, int cause, const char *text, int count)
{
    if (ftf.stage_count < FTF_MAX_STAGES)
        ftf.stages[ftf.stage_count++] = (struct ftf_stage){name, ns, cause, text, count};
}

static const struct ftf_step *running;

static void run_with_hook(void)
{
    ftf_hook_run(running->name);
    running->run();
}

int ftf_step_run(const struct ftf_step *step)
{
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    running = step;
    ftf.line.used = 0;
    ftf.line.overflow = false;
    int cause = step->sandboxed ? ftf_step_sandboxed(run_with_hook, step->deadline_ms, step->share_files)
                                : ftf_step_guarded(run_with_hook, step->deadline_ms);
    ftf_stage_add(step->name, ftf_clock_ns(CLOCK_MONOTONIC) - started, cause, 0, -1);
    return cause;
}

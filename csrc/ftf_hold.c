/* CONTEXT: SIGNAL. See ftf_hold.h.

   The hold signal is chosen at the crash among the real-time signals that are at their default, so the job sees nothing of
   it before. A thread that blocks it (signal-only threads, our own watcher) runs on; the record says how many. */
#include "ftf_hold.h"

#include "ftf_step.h"

#include <string.h>
#include <sys/prctl.h>

static bool must_wait(int me)
{
    uint32_t release = __atomic_load_n(&ftf.release, __ATOMIC_ACQUIRE);
    return (release == 0 || (release == 1 && me == ftf.crash_pid)) && ftf_clock_ns(CLOCK_MONOTONIC) < ftf.hold_until_ns;
}

static void wait_while_held(int me)
{
    while (must_wait(me)) {
        uint32_t seen = __atomic_load_n(&ftf.release, __ATOMIC_ACQUIRE);
        struct timespec timeout = {0, 200000000}; /* a lost wake-up costs a fifth of a second, never a hang */
        ftf_futex(&ftf.release, FUTEX_WAIT_PRIVATE, seen, &timeout);
    }
}

static void mark_held(int tid)
{
    for (int i = 0; i < ftf.thread_count; i++) {
        struct ftf_thread *thread = &ftf.threads[i];
        if (thread->tid != tid)
            continue;
        ftf_syscall2(SYS_prctl, PR_GET_NAME, thread->name); /* cheaper here than from /proc by the recording thread */
        __atomic_store_n(&thread->held, 1, __ATOMIC_RELEASE);
        return;
    }
}

static void on_hold(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    int me = ftf_gettid();
    uint64_t owner = __atomic_load_n(&ftf.owner, __ATOMIC_ACQUIRE);
    if ((uint32_t)owner == (uint32_t)me) {
        if (info->si_code == SI_TIMER)
            ftf_step_recover(FTF_CUT);
        return;
    }
    if (__atomic_load_n(&ftf.progress, __ATOMIC_ACQUIRE) == FTF_IDLE)
        return;
    mark_held(me);
    wait_while_held(me);
}

/* Not on the alternate stack: a fresh page for each of hundreds of threads costs more than everything else here. A thread
   with no room left for the frame faults, and waits as a second crasher. */
static void choose_signal(void)
{
    struct ftf_action before;
    if (ftf.hold_signal && ftf_sigaction(ftf.hold_signal, 0, &before) == 0 && before.handler == on_hold)
        return; /* from a signal that was survived */
    ftf.hold_signal = 0;
    for (int sig = 60; sig > 36; sig--) {
        struct ftf_action old;
        if (ftf_sigaction(sig, 0, &old) != 0 || (void *)old.handler != (void *)SIG_DFL)
            continue;
        struct ftf_action action = {on_hold, SA_SIGINFO | SA_RESTART | ftf.restorer_flag, ftf.restorer, ~UINT64_C(0)};
        for (int i = 0; i < FTF_FAULT_SIGNALS; i++)
            action.mask &= ~ftf_signal_bit(ftf_fault_signals[i]);
        if (ftf_sigaction(sig, &action, 0) == 0)
            ftf.hold_signal = sig;
        return;
    }
}

void ftf_hold_restore_signal(void)
{
    struct ftf_action standard = {0}, ignore = {.handler = (void (*)(int, siginfo_t *, void *))(uintptr_t)SIG_IGN};
    if (ftf.hold_signal) {
        /* Ignoring drops what is still pending for threads that block it: by default it would kill the process the moment
           they no longer do (POSIX, sigaction). */
        ftf_sigaction(ftf.hold_signal, &ignore, 0);
        ftf_sigaction(ftf.hold_signal, &standard, 0);
    }
    ftf.hold_signal = 0;
}

struct directory_entry { /* struct linux_dirent64, man getdents64 */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

static bool known(int tid)
{
    /* The kernel lists threads in order of creation, so a second pass finds new ones at the end. */
    for (int i = ftf.thread_count - 1; i >= 0; i--)
        if (ftf.threads[i].tid == tid)
            return true;
    return false;
}

static int signal_new_threads(int fd, int me)
{
    int fresh = 0;
    ftf_lseek(fd, 0, SEEK_SET);
    for (;;) {
        long got = ftf_syscall3(SYS_getdents64, fd, ftf.scratch, 32768);
        if (got <= 0)
            return fresh;
        for (long at = 0; at < got;) {
            const struct directory_entry *entry = (const struct directory_entry *)(ftf.scratch + at);
            const char *cursor = entry->name;
            int tid = (int)ftf_parse_decimal(&cursor, entry->name + 10);
            at += entry->length;
            if (tid == 0 || known(tid) || ftf.thread_count == FTF_MAX_THREADS)
                continue;
            ftf.threads[ftf.thread_count++] = (struct ftf_thread){.tid = tid};
            if (tid == me || tid == ftf.watcher_tid)
                continue;
            fresh++;
            ftf.threads[ftf.thread_count - 1].signalled =
                ftf.hold_signal != 0 && ftf_tgkill(ftf.crash_pid, tid, ftf.hold_signal) == 0;
        }
    }
}

/* The link count of /proc/self/task is the number of threads and two (fs/proc/base.c, proc_task_getattr). */
static bool more_threads(int fd)
{
    struct stat st;
    return ftf_fstat(fd, &st) != 0 || st.st_nlink != (nlink_t)ftf.thread_count + 2;
}

void ftf_hold_threads(void)
{
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    int me = ftf_gettid();
    ftf.hold_until_ns = started + (int64_t)FTF_SECOND_CRASHER_MS * 1000000;
    ftf.thread_count = 0;
    choose_signal();
    if (ftf.hold_signal && me != ftf.crash_pid) { /* main first: its return ends the process */
        /* The entry before the signal: main may arrive, and look for it, at once. */
        ftf.threads[ftf.thread_count++] = (struct ftf_thread){.tid = ftf.crash_pid};
        ftf.threads[0].signalled = ftf_tgkill(ftf.crash_pid, ftf.crash_pid, ftf.hold_signal) == 0;
    }
    bool close_after = false;
    int fd = ftf.task_fd.fd;
    if (ftf.foreign_process || !ftf_fd_is_ours(&ftf.task_fd)) {
        fd = ftf_open_somehow("/proc/self/task", O_RDONLY | O_DIRECTORY, 0);
        close_after = true;
    }
    int cause = fd < 0 ? fd : FTF_OK;
    for (int pass = 0; fd >= 0 && pass < 4 && signal_new_threads(fd, me) > 0 && more_threads(fd); pass++)
        ;
    if (close_after && fd >= 0)
        ftf_close(fd);
    ftf_stage_add("hold", ftf_clock_ns(CLOCK_MONOTONIC) - started, ftf.hold_signal ? cause : -EAGAIN,
                  ftf.hold_signal ? 0 : "no free real-time signal", -1);
}

/* SigBlk in /proc/self/task/N/status (man proc_pid_status). A thread that does not block the signal runs no instruction of
   its own before it arrives, however late that is. Unreadable: it is gone, or we cannot know and say no. */
bool ftf_thread_blocks(int tid, int sig)
{
    char status[4096];
    long got = ftf_read_task_file(tid, "status", status, sizeof status);
    const char *cursor = status;
    for (const char *end = cursor + (got > 0 ? got : 0); cursor + 7 < end; cursor++)
        if (memcmp(cursor, "SigBlk:", 7) == 0) {
            cursor += 8;
            return (ftf_parse_hex(&cursor, end) & ftf_signal_bit(sig)) != 0;
        }
    return false;
}

static int count_missing(void)
{
    int missing = 0;
    for (int i = 0; i < ftf.thread_count; i++)
        missing += ftf.threads[i].signalled && !ftf.threads[i].held && !ftf.threads[i].deaf;
    return missing;
}

int ftf_hold_wait(int ms)
{
    int64_t until = ftf_clock_ns(CLOCK_MONOTONIC) + (int64_t)ms * 1000000;
    if (count_missing() == 0)
        return 0;
    int deaf = 0;
    for (int i = 0; i < ftf.thread_count; i++) {
        struct ftf_thread *thread = &ftf.threads[i];
        thread->deaf = thread->signalled && !thread->held && ftf_thread_blocks(thread->tid, ftf.hold_signal);
        deaf += thread->deaf;
    }
    for (;;) {
        if (count_missing() == 0 || ftf_clock_ns(CLOCK_MONOTONIC) >= until)
            return deaf;
        struct timespec pause = {0, 200000};
        ftf_syscall2(SYS_nanosleep, &pause, 0);
    }
}

void ftf_hold_release(uint32_t release)
{
    if (release == 1)
        ftf.hold_until_ns = ftf_clock_ns(CLOCK_MONOTONIC) + INT64_C(3000000000);
    __atomic_store_n(&ftf.release, release, __ATOMIC_RELEASE);
    ftf_futex(&ftf.release, FUTEX_WAKE_PRIVATE, 0x7fffffff, 0);
}

void ftf_hold_second_crasher(int ms)
{
    int me = ftf_gettid();
    unsigned slot = __atomic_fetch_add(&ftf.crasher_count, 1, __ATOMIC_ACQ_REL);
    if (slot < FTF_MAX_CRASHERS)
        ftf.crashers[slot] = me;
    mark_held(me);
    int64_t until = ftf_clock_ns(CLOCK_MONOTONIC) + (int64_t)ms * 1000000;
    for (;;) {
        /* Also while a foreign handler runs for the first crasher (release 1): handing over now would change the action
           under its feet. */
        uint32_t release = __atomic_load_n(&ftf.release, __ATOMIC_ACQUIRE);
        int64_t now = ftf_clock_ns(CLOCK_MONOTONIC);
        if (release == 2 || now >= until || (release == 1 && now >= ftf.hold_until_ns))
            return;
        struct timespec timeout = {0, 200000000};
        ftf_futex(&ftf.release, FUTEX_WAIT_PRIVATE, release, &timeout);
    }
}

/* CONTEXT: SIGNAL. TERM, HUP, INT, XCPU and USR1: note who sent it and when, then do what would have been done. A handler
   of the job's is called as it was installed (same mask, same flags); the default action is restored and the signal queued
   again with its siginfo. Never called for ignored signals: install leaves those alone, so nohup stays nohup. */
#include "ftf_handler.h"

#include "ftf_ring_write.h"

void ftf_on_note(int sig, siginfo_t *info, void *context)
{
    static const struct ftf_action standard;
    int index = -1;
    for (int i = 0; i < FTF_NOTED_SIGNALS; i++)
        if (ftf_noted_signals[i] == sig)
            index = i;
    if (index < 0)
        return;
    unsigned slot = __atomic_fetch_add(&ftf.seen_count, 1, __ATOMIC_RELAXED) % FTF_SEEN_SIZE;
    int64_t now = ftf_clock_ns(CLOCK_MONOTONIC);
    ftf.seen[slot] = (struct ftf_seen){sig, info->si_code, info->si_pid, info->si_uid, now};
    const struct ftf_action *old = &ftf.noted[index];
    bool standard_action = (void *)old->handler == (void *)SIG_DFL;
    /* The first process of a container survives what it has no handler for (man 7 pid_namespaces). */
    bool fatal = standard_action && ftf_getpid() != 1;
    ftf_ring_put_signal(sig, info, now, fatal);
    if (fatal)
        ftf_ring_save();
    else
        ftf_ring_save_soon();
    if (standard_action) {
        ftf_sigaction(sig, &standard, 0);
        if (ftf_requeue(ftf_getpid(), ftf_gettid(), sig, info) != 0)
            ftf_tgkill(ftf_getpid(), ftf_gettid(), sig);
        return;
    }
    old->handler(sig, info, context); /* without SA_SIGINFO it looks at its first argument only */
}

/* CONTEXT: NORMAL. See ftf_watcher.h. */
#include "ftf_watcher.h"

#include "ftf_altstack.h"
#include "ftf_hold.h"
#include "ftf_install.h"
#include "ftf_inventory.h"
#include "ftf_ownership.h"
#include "ftf_recorder.h"
#include "ftf_recorder_read.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PERIOD_NS 100000000
#define TOGETHER_NS 20000000 /* what is due so soon is done now: to be woken costs more than to look at the handlers */
#define PATIENCE_SECONDS 2
#define TURN_NS 5000000
#define CREDIT_NS (20 * TURN_NS)
#define SURVIVED_NS INT64_C(3000000000)

static pthread_t thread;
static bool running;
static bool stuck; /* it was, when it was last told to stop */

/* A signal that somebody sent can be survived: the job's own handler returned. While it runs it blocks its signal (unless
   it said SA_NODEFER), and taking the signal back then would make it run twice. After a fault there is no coming back. */
static bool survived(void)
{
    if (__atomic_load_n(&ftf.progress, __ATOMIC_ACQUIRE) != FTF_DONE)
        return false;
    uint64_t owner = __atomic_load_n(&ftf.owner, __ATOMIC_ACQUIRE);
    return (int)(owner >> 32) != ftf.pid ||
           (ftf.survivable && ftf_clock_ns(CLOCK_MONOTONIC) - ftf.done_ns > SURVIVED_NS &&
            !ftf_thread_blocks((int)(uint32_t)owner, ftf.signal));
}

/* Returns early when the bell says something else than `now`. */
static void rest(uint32_t now, int64_t nanoseconds)
{
    struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    if (nanoseconds > 0)
        ftf_futex(&ftf.bell, FUTEX_WAIT_PRIVATE, now, &time);
}

/* Few marks are saved as they come. A job that marks a thousand steps a second uses its credit up, and from then on rings
   once in TURN_NS: as long as the bell is rung nobody wakes us. */
static void after_bell(void)
{
    static int64_t paid_until;
    uint32_t rung = FTF_BELL_RUNG;
    int64_t now = ftf_clock_ns(CLOCK_MONOTONIC);
    paid_until = (paid_until < now - CREDIT_NS ? now - CREDIT_NS : paid_until) + TURN_NS;
    rest(FTF_BELL_RUNG, paid_until - now);
    __atomic_compare_exchange_n(&ftf.bell, &rung, FTF_BELL_QUIET, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* A process ends when its last thread does (a child forked by a thread whose function then returns, a main thread that
   called pthread_exit), and that must not be put off by ours. A main thread that is gone has no memory. */
static bool left_alone(void)
{
    char memory[2] = "";
    int tasks[3];
    int fd = (int)ftf_open("/proc/self/statm", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    long got = ftf_read(fd, memory, sizeof memory);
    ftf_close(fd);
    return got == sizeof memory && memory[0] == '0' && memory[1] == ' ' &&
           ftf_numbers_in("/proc/self/task", tasks, 3) == 2;
}

static void *watch(void *unused)
{
    (void)unused;
    __atomic_store_n(&ftf.watcher_tid, ftf_gettid(), __ATOMIC_RELEASE);
    prctl(PR_SET_NAME, "ftforensics");
    int64_t now = ftf_clock_ns(CLOCK_MONOTONIC);
    int64_t handlers_due = now + PERIOD_NS;
    for (uint32_t bell; (bell = __atomic_load_n(&ftf.bell, __ATOMIC_ACQUIRE)) != FTF_BELL_STOP;) {
        int64_t sample_due = now + PERIOD_NS;
        if (__atomic_load_n(&ftf.progress, __ATOMIC_ACQUIRE) == FTF_IDLE)
            sample_due = ftf_recorder_tick(now);
        if (now + TOGETHER_NS >= handlers_due) {
            handlers_due = now + PERIOD_NS;
            if (left_alone())
                break; /* the C library then calls exit(0), as it would have after the last of the others */
            if (survived())
                ftf_install_rearm();
            if (__atomic_load_n(&ftf.progress, __ATOMIC_ACQUIRE) == FTF_IDLE) {
                ftf_ownership_check();
                ftf_inventory_tick();
            }
        }
        if (bell == FTF_BELL_RUNG)
            after_bell();
        else
            rest(FTF_BELL_QUIET,
                 (sample_due < handlers_due ? sample_due : handlers_due) - ftf_clock_ns(CLOCK_MONOTONIC));
        now = ftf_clock_ns(CLOCK_MONOTONIC);
    }
    return 0;
}

int ftf_watcher_start(void)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    if (running)
        return 0;
    __atomic_store_n(&ftf.bell, FTF_BELL_QUIET, __ATOMIC_RELEASE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    int result = pthread_create(&thread, &attributes, watch, 0);
    pthread_attr_destroy(&attributes);
    if (result == EINVAL) /* a process with much static TLS needs more */
        result = pthread_create(&thread, 0, watch, 0);
    pthread_sigmask(SIG_SETMASK, &old, 0);
    running = result == 0;
    while (running && __atomic_load_n(&ftf.watcher_tid, __ATOMIC_ACQUIRE) == 0) /* the handler must know it */
        sched_yield();
    return -result;
}

/* A system call that never returns (a driver, a dead disk) must not take the job with it: then the thread stays. */
static bool joined(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += stuck ? 0 : PATIENCE_SECONDS; /* once: a job that forks sixteen workers waits for it once */
    stuck = pthread_timedjoin_np(thread, 0, &until) != 0;
    return !stuck;
}

void ftf_watcher_stop(void)
{
    if (!running)
        return;
    __atomic_store_n(&ftf.bell, FTF_BELL_STOP, __ATOMIC_RELEASE);
    ftf_futex(&ftf.bell, FUTEX_WAKE_PRIVATE, 1, 0);
    if (!joined()) {
        __atomic_store_n(&ftf.bell, FTF_BELL_QUIET, __ATOMIC_RELEASE);
        return;
    }
    /* The join ends when the kernel clears the thread's id in exit_mm(); the task leaves the thread group a little later,
       in release_task(), and until then os.fork() of Python 3.12 and later counts two (/proc/self/stat). */
    for (int turn = 0; turn < 10000 && ftf.watcher_tid && tgkill(getpid(), ftf.watcher_tid, 0) == 0; turn++)
        sched_yield();
    running = false;
    ftf.watcher_tid = 0;
}

void ftf_watcher_forget(void)
{
    running = stuck = false;
    ftf_inventory_forget();
}

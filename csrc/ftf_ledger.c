/* CONTEXT: NORMAL. See ftf_ledger.h.

   The code that a process leaves with is known to no exit handler of Python: `sys.exit(3)` has dropped its exception by
   the time they run. on_exit(3) is told it. capture/ledger.py appends by the same rules and gives their reasons. */
#include "ftf_ledger.h"

#include "ftf_altstack.h"
#include "ftf_arch.h"
#include "ftf_inventory.h"
#include "ftf_keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRIES 20
#define PAUSE_NS 5000000
#define DEADLINE_NS 500000000
#define STACK_BYTES (64 * 1024)

static const char *ledger, *begin;
static pid_t owner;
static bool registered;

static void at_exit(int code, void *unused)
{
    (void)unused;
    ftf_ledger_end(code);
}

int ftf_ledger_configure(const char *path, const char *line)
{
    ledger = begin = 0;
    owner = getpid();
    if (!*path)
        return 0;
    const char *kept_line = ftf_keep(line, strlen(line)), *kept_path = ftf_keep(path, strlen(path));
    if (!kept_line || !kept_path)
        return -ENOMEM;
    if (!registered && on_exit(at_exit, 0) != 0)
        return -ENOMEM;
    registered = true;
    begin = kept_line;
    ledger = kept_path;
    return 0;
}

/* The ledger, locked against being compacted, or -1. It is made when a run begins, never here. */
static int open_locked(void)
{
    struct stat opened, named;
    for (int turn = 0; turn < TRIES; turn++) {
        int fd = open(ledger, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return -1;
        bool locked = flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK; /* a file system without locks */
        if (fstat(fd, &opened) != 0 || !S_ISREG(opened.st_mode) || opened.st_uid != geteuid()) {
            close(fd);
            return -1;
        }
        /* It was replaced between the open and the lock when the name is another file's by now. */
        if (locked && lstat(ledger, &named) == 0 && named.st_dev == opened.st_dev && named.st_ino == opened.st_ino)
            return fd;
        close(fd);
        nanosleep(&(struct timespec){0, PAUSE_NS}, 0);
    }
    return -1;
}

/* In a process of its own, see ftf_ledger_end(). */
static void append(void *argument)
{
    char *line = argument, last = '\n'; /* a newline to begin with, which is left out where the file ends with one */
    struct rlimit most;
    /* Left behind in a dead file system, it must not keep the job's pipes and sockets open. */
    ftf_syscall3(SYS_close_range, 0, ~0u, 0);
    int fd = open_locked();
    if (fd < 0)
        return;
    off_t end = lseek(fd, 0, SEEK_END);
    if (end > 0 && pread(fd, &last, 1, end - 1) != 1)
        last = 0;
    if (last == '\n')
        line++;
    size_t size = strlen(line);
    /* Beyond this limit a write is a SIGXFSZ, whose handling is the job's. */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && (rlim_t)end + (rlim_t)size < most.rlim_cur)
        (void)!write(fd, line, size); /* a full disk: then nobody saw the end */
    close(fd);
}

/* The user's home may be a mount whose server went away: then open(2) waits, and nothing but SIGKILL gets it out of
   there. So another process does it, which shares our memory (fork(2) would copy the page tables of a training job) and
   is found by nobody but us: no exit signal, all signals blocked. Cut, it may sit there for longer than we live. */
static void append_within_deadline(char *line)
{
    static uint32_t alive;
    struct ftf_stack stack = ftf_stack_map(STACK_BYTES);
    uint64_t all = ~UINT64_C(0), before;
    int64_t until = ftf_clock_ns(CLOCK_MONOTONIC) + DEADLINE_NS, left;
    if (!stack.base || ftf.no_sandbox)
        return;
    alive = 1;
    ftf_sigprocmask(SIG_SETMASK, &all, &before);
    long pid =
        ftf_clone(CLONE_VM | CLONE_UNTRACED | CLONE_CHILD_CLEARTID, stack.base + stack.size, append, line, &alive);
    ftf_sigprocmask(SIG_SETMASK, &before, 0);
    if (pid < 0)
        return;
    while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE) && (left = until - ftf_clock_ns(CLOCK_MONOTONIC)) > 0)
        ftf_futex(&alive, FUTEX_WAIT, 1, &(struct timespec){left / 1000000000, left % 1000000000});
    bool cut = __atomic_load_n(&alive, __ATOMIC_ACQUIRE);
    if (cut)
        ftf_kill((int)pid, SIGKILL);
    ftf_wait4((int)pid, 0, cut ? __WALL | WNOHANG : __WALL);
}

void ftf_ledger_end(int code)
{
    static char line[2048];
    const char *path = ledger;
    char how[40] = "\"ok\"";
    struct timespec now;
    /* Nothing was written about a run that was over before the inventory looked at it. */
    if (!path || owner != getpid() || !ftf_inventory_started())
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    if (code & 0xff)
        snprintf(how, sizeof how, "\"code\", \"code\": %d", code & 0xff);
    int size = snprintf(line, sizeof line, "\n%s%lld.%03ld, \"how\": %s}\n", begin, (long long)now.tv_sec,
                        now.tv_nsec / 1000000, how);
    if (size > 0 && (size_t)size < sizeof line)
        append_within_deadline(line);
    ledger = 0;
}

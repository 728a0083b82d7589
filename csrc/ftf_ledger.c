/* CONTEXT: NORMAL. See ftf_ledger.h.

   The code that a process leaves with is known to no exit handler of Python: `sys.exit(3)` has dropped its exception by
   the time they run. on_exit(3) is told it. capture/ledger.py appends by the same rules and gives their reasons. */
#include "ftf_ledger.h"

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

void ftf_ledger_end(int code)
{
    const char *path = ledger, *start = begin;
    char line[2048], last = '\n', how[40] = "\"ok\"";
    struct timespec now;
    struct rlimit most;
    /* Nothing was written about a run that was over before the inventory looked at it. */
    if (!path || owner != getpid() || !ftf_inventory_started())
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    if (code & 0xff)
        snprintf(how, sizeof how, "\"code\", \"code\": %d", code & 0xff);
    int size = snprintf(line + 1, sizeof line - 1, "%s%lld.%03ld, \"how\": %s}\n", start, (long long)now.tv_sec,
                        now.tv_nsec / 1000000, how);
    int fd = size > 0 && (size_t)size < sizeof line - 1 ? open_locked() : -1;
    ledger = 0;
    if (fd < 0)
        return;
    off_t end = lseek(fd, 0, SEEK_END);
    if (end > 0 && pread(fd, &last, 1, end - 1) != 1)
        last = 0;
    /* Beyond this limit a write is a SIGXFSZ, whose handling is the job's. */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && (rlim_t)end + (rlim_t)size < most.rlim_cur) {
        line[0] = '\n';
        const char *text = last == '\n' ? line + 1 : line;
        ssize_t written = write(fd, text, (size_t)(line + 1 + size - text));
        (void)written; /* a full disk: then nobody saw the end */
    }
    close(fd);
}

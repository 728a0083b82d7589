/* CONTEXT: NORMAL. See ftf_ending.h.

   The status is known to no exit handler of Python (see ftf_ledger.c) and to no destructor, but on_exit(3) is told it. That
   handler runs among those of the job; what the status decides is done by a destructor, after all of them. */
#include "ftf_ending.h"

#include "ftf_keep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pid_t owner; /* a forked child inherits the list, and none of the files is its own */
    int count;
    const char *paths[FTF_ENDING_FILES];
} kept;
static struct {
    pid_t pid;
    int code;
} told;
static bool watching;

static void at_exit(int code, void *unused)
{
    (void)unused;
    told.pid = getpid();
    told.code = code & 0xff;
}

int ftf_ending_watch(void)
{
    if (!watching && on_exit(at_exit, 0) != 0)
        return -ENOMEM;
    watching = true;
    return 0;
}

int ftf_ending_status(void) { return told.pid == getpid() ? told.code : -1; }

int ftf_ending_remove_at_success(const char *path)
{
    if (kept.owner != getpid())
        kept.count = 0;
    kept.owner = getpid();
    if (kept.count == FTF_ENDING_FILES)
        return -ENOSPC;
    const char *copy = ftf_keep(path, strlen(path));
    if (!copy)
        return -ENOMEM;
    kept.paths[kept.count++] = copy;
    return 0;
}

void ftf_ending_success(void)
{
    if (kept.owner != getpid())
        return;
    for (int i = 0; i < kept.count; i++)
        unlink(kept.paths[i]);
    kept.count = 0;
}

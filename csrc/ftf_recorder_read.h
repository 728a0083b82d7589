/* CONTEXT: NORMAL. Small files of /proc and of control groups, read without allocating. For the watcher thread alone. */
#ifndef FTF_RECORDER_READ_H
#define FTF_RECORDER_READ_H

#include "ftf_ring.h"
#include "ftf_state.h"

/* A file that is read ten times a second and more: kept open, because opening costs four times what reading does. The job
   may close the descriptor and get its number for a file of its own, so it is compared before every use. */
struct ftf_kept_file {
    struct ftf_fd fd;
    int retry; /* reads to wait before it is opened again */
    char path[896];
};

#define FTF_KEPT_CLOSED {.fd = {.fd = -1}}

void ftf_kept_open(struct ftf_kept_file *file, const char *path); /* closes what was open; "" or NULL: only that */
void ftf_kept_close(struct ftf_kept_file *file);

/* The text of a file in a buffer that all of these share, zero-terminated, until the next call; NULL: unreadable. */
const char *ftf_read_kept(struct ftf_kept_file *file);
const char *ftf_read_file(const char *path);

/* The decimal number at the beginning of a text; "max" is FTF_RING_UNLIMITED; else, and for NULL, FTF_RING_UNKNOWN. */
uint64_t ftf_number(const char *text);
/* The number behind the first line that begins with `key` and a blank or tab ("RssAnon:", "oom_kill"). */
uint64_t ftf_number_of(const char *text, const char *key);
/* Kilobytes to bytes. */
uint64_t ftf_kb(uint64_t kilobytes);

/* The entries of a directory of /proc whose names are numbers (pids, thread ids), at most `capacity`. Returns how many. */
int ftf_numbers_in(const char *directory, int *numbers, int capacity);

#endif

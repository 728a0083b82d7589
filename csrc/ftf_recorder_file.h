/* CONTEXT: NORMAL. The file behind the ring: made, moved, removed. */
#ifndef FTF_RECORDER_FILE_H
#define FTF_RECORDER_FILE_H

#include "ftf_recorder.h"
#include "ftf_ring_write.h"

/* How many slots of each kind, and what the header says. */
struct ftf_ring_plan {
    uint32_t fast, slow, signals, marks;
    struct ftf_ring_header header; /* all but layout, size and magic */
};

/* Makes the file in ftf.directory, or in `local` when that lies on a network file system, and maps it into ftf_ring. Returns
   0, or -errno with *failed naming the system call. */
int ftf_ring_file_make(const struct ftf_ring_plan *plan, const char *local, const char **failed);
/* Puts a ring whose file is gone, or stands in another folder than ftf.directory, under its name again: same pages. */
int ftf_ring_file_move(const char *local, const char **failed);
/* Does the file stand where ftf.directory and ftf.stem say? */
bool ftf_ring_file_is_in_place(void);
/* Takes the file away; the pages stay mapped. */
void ftf_ring_file_remove(void);
/* Writes into the file itself that the recorder is over, after its pages were lost. */
void ftf_ring_file_tell_trouble(enum ftf_ring_trouble trouble);
/* Unmaps it. */
void ftf_ring_file_forget(void);

#endif

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

/* Makes the file in ftf.directory, or in `local` when that lies on a network file system, and the ring in ftf_ring. Returns 0, or
   -errno with *failed naming the system call. Nothing is in the file before ftf_ring_save(). */
int ftf_ring_file_make(const struct ftf_ring_plan *plan, const char *local, const char **failed);
/* Gives a ring whose file is gone, or stands in another folder than ftf.directory, a new file, and takes the old one away.
   When that fails, the old one stays. */
int ftf_ring_file_move(const char *local, const char **failed);
/* Did this process have to make the run folder again for it? */
bool ftf_ring_file_made_folder(void);
/* Does the file stand where ftf.directory and ftf.stem say? */
bool ftf_ring_file_is_in_place(void);
/* Takes the file away; the ring stays in memory. */
void ftf_ring_file_remove(void);
/* Gives back the pages of the file that hold nothing, for one that stays when its process has ended. */
void ftf_ring_file_shrink(void);
/* Makes a file that was cut whole again: after it, ftf_ring_save() writes all anew. */
void ftf_ring_file_mend(void);
/* Gives its memory back. Async-signal-safe. */
void ftf_ring_file_forget(void);

#endif

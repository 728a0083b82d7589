/* CONTEXT: NORMAL. The flight recorder: the last minutes of a process in a file that survives SIGKILL.

   The watcher thread (ftf_watcher.c) calls ftf_recorder_tick(); marks come from the job's threads (ftf_recorder_marks.c),
   signals from handlers (ftf_note.c). Format: ftf_ring.h. */
#ifndef FTF_RECORDER_H
#define FTF_RECORDER_H

#include "ftf_state.h"

struct ftf_recorder_config {
    const char *tool; /* version */
    const char *text; /* section JOB: "key=value" entries, a zero byte behind each */
    size_t text_size;
    const char *group_mount; /* where the hierarchy with the memory controller is mounted; "" none */
    const char *group_root; /* which group of it lies there, "/" but in containers */
    int group_version; /* 1 or 2 */
    const char *local_directory; /* for the ring when the run folder lies on a network file system */
    const char *gpu; /* index or UUID of the device, "" none */
    char **removable; /* folders to remove at the end when they are empty, innermost first */
    int64_t rank, local_rank, world_size; /* -1: none */
    int worker_of; /* 0: none */
};

/* Before ftf_recorder_start(), and again when install() is called again. Returns 0 or a negative errno. */
int ftf_recorder_configure(const struct ftf_recorder_config *config);
/* Makes the ring of the process that called install(), or moves it to where the configuration says now. */
void ftf_recorder_start(void);
/* Why there is no ring ("fallocate: No space left on device"), "" when there is one or none was wanted. */
const char *ftf_recorder_refusal(void);
/* One turn of the watcher thread; returns the monotonic time of the next in nanoseconds. */
int64_t ftf_recorder_tick(int64_t now);
/* The process says goodbye: marks the end and removes the ring; with an exit status other than 0 (-1: not known) the ring
   stays. FTF_RING_EXEC may be taken back when exec(3) failed. */
void ftf_recorder_leave(int how, int status);
void ftf_recorder_come_back(void);
/* Uninstall, with the watcher stopped. */
void ftf_recorder_close(void);
/* In a forked child: the parent's ring is not ours. Async-signal-safe. */
void ftf_recorder_forget(int parent);
/* The crash that was recorded was survived. */
void ftf_recorder_survived(void);

/* Marks of the job, from its threads. */
void ftf_recorder_phase(void); /* as it stands in ftf.phases */
void ftf_recorder_step(void);
void ftf_recorder_note(void);
void ftf_recorder_marks_again(void); /* into a ring that has just been made */
void ftf_recorder_marks_forget(void);

#endif

/* CONTEXT: NORMAL. The one thread: looks after the handlers, samples for the flight recorder and asks for the inventory. */
#ifndef FTF_WATCHER_H
#define FTF_WATCHER_H

#include "ftf_state.h"

/* All signals blocked; never takes the GIL, allocates nothing that a fork could catch half-made. */
int ftf_watcher_start(void);
/* Stops it and waits: before fork(2), so that a single-threaded job stays one (CPython 3.12+ warns otherwise). */
void ftf_watcher_stop(void);
/* In a forked child there is no thread: forget it without waiting. */
void ftf_watcher_forget(void);

#endif

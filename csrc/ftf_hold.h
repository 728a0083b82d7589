/* CONTEXT: SIGNAL. While one thread records, the others must not run on: main could return and the wait status become 0. */
#ifndef FTF_HOLD_H
#define FTF_HOLD_H

#include "ftf_state.h"

/* Sends every other thread a real-time signal whose handler waits. Main first. Adds the stage "hold". */
void ftf_hold_threads(void);
/* Waits until the signalled threads have arrived, at most `ms`. Returns how many cannot be held: they block signals. */
int ftf_hold_wait(int ms);
/* 1: only the main thread stays held, at most 3 s more; 2: everybody runs on. */
void ftf_hold_release(uint32_t release);
/* Blocks until the recording thread is done or `ms` have passed (a second crasher). */
void ftf_hold_second_crasher(int ms);
void ftf_hold_restore_signal(void);
/* Does a thread of ours block the signal? False when it is gone. */
bool ftf_thread_blocks(int tid, int sig);

#endif

/* CONTEXT: SIGNAL. Three ways up the crashed stack, each leaving ftf.walk filled with what it could show. */
#ifndef FTF_UNWIND_H
#define FTF_UNWIND_H

#include "ftf_state.h"

/* libgcc's unwinder from the saved context; run as a step (it may fault on a broken stack, and does not return). */
void ftf_unwind_tables(void);
/* The chain of frame pointers. Compilers leave it out of most libraries, but it survives a bad pc. */
void ftf_unwind_frame_pointers(void);
/* Every word of the stack that follows a call instruction: false frames included, nothing left out. */
void ftf_unwind_scan(void);
/* The lowest stack address worth looking at: sp, or where the stack must be when sp is wild. `note` says which. */
uint64_t ftf_stack_start(const char **note);

#endif

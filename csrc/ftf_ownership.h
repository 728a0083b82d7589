/* CONTEXT: NORMAL. Who owns the fatal signals now, and getting them back. */
#ifndef FTF_OWNERSHIP_H
#define FTF_OWNERSHIP_H

#include "ftf_state.h"

/* Installs our action for the fault signals, keeping what was there as the oldest entry of each chain. */
void ftf_ownership_take(void);
/* Takes back fault signals that another library has taken since; theirs goes behind us. Returns how many. */
int ftf_ownership_check(void);
/* Puts the oldest actions back where ours still stand. */
void ftf_ownership_give_up(void);
void ftf_notes_take(void);
void ftf_notes_give_up(void);

#endif

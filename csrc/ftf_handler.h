/* CONTEXT: SIGNAL. The signal entries. */
#ifndef FTF_HANDLER_H
#define FTF_HANDLER_H

#include "ftf_state.h"

void ftf_on_fault(int sig, siginfo_t *info, void *context); /* SEGV, BUS, ILL, FPE, ABRT */
void ftf_on_note(int sig, siginfo_t *info, void *context);  /* TERM, HUP, INT, XCPU, USR1 */
/* The action that install and take-back set for a fault signal. */
struct ftf_action ftf_fault_action(void);

#endif

/* CONTEXT: SIGNAL. The file behind a SIGBUS: shorter now than its mapping, or its file system full? */
#ifndef FTF_FILE_H
#define FTF_FILE_H

#include "ftf_state.h"

/* A step, for the sandbox (stat on a dead network file system blocks): asks about the file mapped at the fault address. */
void ftf_file_ask(void);
/* The member "fault_file". */
void ftf_member_fault_file(void);

#endif

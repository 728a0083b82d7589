/* CONTEXT: SIGNAL. Ring 2: a process started at the crash that looks at us from outside and speaks to the person. */
#ifndef FTF_REPORTER_H
#define FTF_REPORTER_H

#include "ftf_state.h"

/* Starts it, waits until it ends or FTF_REPORTER_MS have passed. Adds the stage "reporter". */
void ftf_reporter_run(void);

#endif

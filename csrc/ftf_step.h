/* CONTEXT: SIGNAL. Running one step of the handler so that its fault or hang costs only that step.

   Two ways. `ftf_step_guarded`: in the handler's own thread; a fault re-enters the handler on the same thread, which jumps
   back here; a hang is cut by a POSIX timer aimed at this thread. `ftf_step_sandboxed`: in a child made by
   clone(CLONE_VM) that shares our memory but not our signal table; a fault ends only the child, a hang is ended by
   SIGKILL. The child is invisible to the job: no exit signal, found only by wait4(__WALL). Where it cannot be made
   (RLIMIT_NPROC, seccomp) the step runs guarded. Measured: 0.07 to 0.14 ms for the child, against 99 ms a GB for
   fork(2). */
#ifndef FTF_STEP_H
#define FTF_STEP_H

#include "ftf_state.h"

struct ftf_step {
    const char *name;
    void (*run)(void);
    int deadline_ms;
    bool sandboxed;
    bool share_files; /* sandboxed: descriptors that it opens are ours */
};

/* Runs a step, with its test hook, and adds to ftf.stages. Returns the cause (enum ftf_cause, a signal, -errno). */
int ftf_step_run(const struct ftf_step *step);
/* Adds to ftf.stages without running anything. */
void ftf_stage_add(const char *name, int64_t ns, int cause, const char *text, int count);

int ftf_step_guarded(void (*run)(void), int deadline_ms);
int ftf_step_sandboxed(void (*run)(void), int deadline_ms, bool share_files);
/* Ends a step whose stack cannot be returned from (see ftf_call_below_frame). */
void ftf_step_leave(void) __attribute__((noreturn));
/* Called by the signal entry when the recording thread faults or is cut: does not return when a step was running. */
void ftf_step_recover(int cause);

void ftf_deadline_create(void);
void ftf_deadline_delete(void);

#endif

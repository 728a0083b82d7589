/* CONTEXT: SIGNAL. Starting a program without copying anything of the job and without its noticing. */
#ifndef FTF_SPAWN_H
#define FTF_SPAWN_H

#include "ftf_state.h"

/* clone(CLONE_VM|CLONE_VFORK) and execve. output_fd becomes the child's stdout, error_fd its stderr (-1: /dev/null).
   Returns the pid or -errno. The stack is free again on return. From its execve on it is an ordinary child of ours, which
   ends with SIGCHLD and is seen by wait() (fs/exec.c, de_thread()): for processes that die. */
long ftf_spawn(char *const argv[], char *const env[], int output_fd, int error_fd, struct ftf_stack stack);
/* The same with one process between, which ends at once, so that init inherits the program and no wait() of the job finds
   it. SIGALRM ends it after `seconds`. */
long ftf_spawn_detached(char *const argv[], char *const env[], int output_fd, int seconds, struct ftf_stack stack);
/* Has a detached one ended? (In a container whose first process never waits, it stays a zombie.) */
bool ftf_spawn_ended(int pid);

#endif

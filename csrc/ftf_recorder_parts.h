/* CONTEXT: NORMAL. What the recorder samples, one file each (ftf_recorder_NAME.c). For the watcher thread alone, except
   where it says otherwise. None of it allocates, takes a lock of the job's or needs the GIL. */
#ifndef FTF_RECORDER_PARTS_H
#define FTF_RECORDER_PARTS_H

#include "ftf_recorder.h"
#include "ftf_ring.h"

/* own: memory of this process, its threads, its CPU time, its names */
void ftf_own_open(void); /* also by install's thread, before there is a watcher */
void ftf_own_close(void);
void ftf_own_fast(struct ftf_ring_fast *fast);
void ftf_own_slow(struct ftf_ring_slow *slow);
/* The text of section PROCESS without control groups; returns its length. */
size_t ftf_own_text(char *text, size_t size);
void ftf_own_thread_names(void);

/* groups: the chain of control groups above this process */
void ftf_groups_open(const struct ftf_recorder_config *config); /* as ftf_own_open */
void ftf_groups_close(void);
/* Has the process moved to another group? Then the chain is read anew. */
bool ftf_groups_follow(void);
size_t ftf_groups_text(char *text, size_t size);
uint64_t ftf_groups_usage(void);
void ftf_groups_slow(struct ftf_ring_slow *slow, bool statistics);
/* Is a limit of the chain more than four fifths used? By the own group's usage now and the others' a second ago. */
bool ftf_groups_pressed(uint64_t usage);
/* The smallest limit of the chain, or FTF_RING_UNLIMITED. */
uint64_t ftf_groups_limit(void);

/* node: what all processes of the machine share */
void ftf_node_open(void);
void ftf_node_close(void);
uint64_t ftf_node_available(void);
void ftf_node_slow(struct ftf_ring_slow *slow, bool leader);
bool ftf_node_pressed(uint64_t available);

/* children */
void ftf_children_slow(struct ftf_ring_slow *slow);
void ftf_children_forget(void);

/* gpu: asks a driver library that the job itself has loaded and initialised */
void ftf_gpu_find(const char *device); /* in a thread of the job's: it takes the loader's lock */
void ftf_gpu_slow(struct ftf_ring_slow *slow);

#endif

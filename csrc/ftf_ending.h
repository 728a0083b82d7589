/* CONTEXT: NORMAL. The status that this process ends with, and what it takes away when that is 0. */
#ifndef FTF_ENDING_H
#define FTF_ENDING_H

#include "ftf_context.h"

/* From here on exit(3) tells us its status. Returns 0 or -errno. */
int ftf_ending_watch(void);
/* The status of the exit(3) under way, 0 to 255; -1: not known. */
int ftf_ending_status(void);
/* Has a file of this process's go when it ends well. Returns 0 or -errno: there is room for FTF_ENDING_FILES. */
int ftf_ending_remove_at_success(const char *path);
/* It ends well: takes those files away. */
void ftf_ending_success(void);

#define FTF_ENDING_FILES 32

#endif

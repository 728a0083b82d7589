/* CONTEXT: ANY. Trouble on request, for the tests: makes a named step of the handler fault, hang or allocate. Inert unless
   _native.test_hook() was called. */
#ifndef FTF_HOOK_H
#define FTF_HOOK_H

#include "ftf_context.h"

#define FTF_MAX_HOOKS 8

struct ftf_hook {
    char step[24];
    int kind; /* 0 none, a signal number to fault with, or one of: */
#define FTF_HOOK_HANG 100
#define FTF_HOOK_MALLOC 101
#define FTF_HOOK_KILL 102
};

extern struct ftf_hook ftf_hooks[FTF_MAX_HOOKS];
extern void (*ftf_hook_malloc)(void); /* set by NORMAL code, so that SIGNAL files do not import malloc */

void ftf_hook_run(const char *step);
/* For trouble that is no fault: is this step named at all? */
bool ftf_hook_is_set(const char *step);

#endif

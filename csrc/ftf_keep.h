/* CONTEXT: NORMAL. Text that the handler will need, where a damaged heap cannot reach it. */
#ifndef FTF_KEEP_H
#define FTF_KEEP_H

#include "ftf_context.h"

/* Copies `size` bytes into read-only memory of our own and puts a zero behind. Never given back: a handler may be reading
   it. NULL when there is no memory. */
char *ftf_keep(const void *bytes, size_t size);

#endif

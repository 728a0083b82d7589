/* CONTEXT: SIGNAL. Reading memory that may not be there, without faulting. */
#ifndef FTF_PEEK_H
#define FTF_PEEK_H

#include "ftf_context.h"

/* Copies `size` bytes from `address`; false when any of them cannot be read. */
bool ftf_peek(uint64_t address, void *buffer, size_t size);
/* Copies as many bytes as can be read from `address` on, page by page. */
size_t ftf_peek_some(uint64_t address, void *buffer, size_t size);
/* A string of at most size-1 bytes, always terminated; false when not even its first byte can be read. */
bool ftf_peek_string(uint64_t address, char *buffer, size_t size);

#endif

/* CONTEXT: ANY. Takes secrets out of text that the job made at run time and that only the crash brings to light: what() of
   an exception, an assertion's message. A small part of capture/redact.py, which sees everything that is known before. */
#ifndef FTF_REDACT_H
#define FTF_REDACT_H

#include "ftf_context.h"

/* Overwrites, in place, with one '*' for each byte. */
void ftf_redact(char *text, size_t length);

#endif

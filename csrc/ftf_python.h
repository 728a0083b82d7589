/* CONTEXT: SIGNAL. Python stacks, by CPython's own dumper. */
#ifndef FTF_PYTHON_H
#define FTF_PYTHON_H

#include "ftf_state.h"

/* Steps: each leaves text in ftf.dump_text. */
void ftf_python_dump_current(void);
void ftf_python_dump_all(void);
/* Why no dump can be made now, or NULL. */
const char *ftf_python_refusal(void);
/* Empties the memfd before a dump. */
void ftf_python_prepare(void);
/* Fetches what a cut or dead dumper left. */
void ftf_python_collect(void);

#endif

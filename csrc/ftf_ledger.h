/* CONTEXT: NORMAL. The last line of a run in the environment ledger: how it ended, told at exit(3). */
#ifndef FTF_LEDGER_H
#define FTF_LEDGER_H

#include "ftf_context.h"

/* path: the ledger's absolute path, "" for none; line: the JSON object up to the value of "at". Returns 0 or -errno. */
int ftf_ledger_configure(const char *path, const char *line);
/* The process that called the function above leaves with this exit code. Writes once; never waits longer than 0.5 s. */
void ftf_ledger_end(int code);

#endif

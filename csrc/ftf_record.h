/* CONTEXT: SIGNAL. The record file: made to appear under its name at the crash, written in whole lines. */
#ifndef FTF_RECORD_H
#define FTF_RECORD_H

#include "ftf_state.h"

/* Makes the record appear at ftf.path and sets ftf.output_fd. Returns 0 or a negative errno. */
int ftf_record_open(void);
/* Writes ftf.line whole or not at all (a failed write is taken back). Returns 0 or a negative errno. */
int ftf_record_write_line(void);
/* dir "/" stem "-" pid "-" start [ "-" counter ] ".crash.json" into `out`. */
void ftf_record_name(char *out, size_t size, const char *directory, int counter);

#endif

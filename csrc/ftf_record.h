/* CONTEXT: SIGNAL. The record file: made to appear under its name at the crash, written in whole lines. */
#ifndef FTF_RECORD_H
#define FTF_RECORD_H

#include "ftf_state.h"

#define FTF_RECORD_SUFFIX ".crash.json"

/* Before the first byte, and after the last: closes the file. */
void ftf_record_begin(void);
void ftf_record_finish(void);
/* Makes the record appear at ftf.path, in the run folder or in /tmp, and sets ftf.output_fd. Returns 0 or a negative errno.
   Block on a dead file system. */
int ftf_record_open(void);
int ftf_record_open_elsewhere(void);
/* Takes away a file in which not a line could be written. */
void ftf_record_discard(void);
/* Writes ftf.line whole or not at all (a failed write is taken back). Returns 0 or a negative errno. */
int ftf_record_write_line(void);
/* How many lines there are, and taking the last ones away again: where only the last ones do not fit, what closes the JSON
   object is worth more than what stands before it. */
int ftf_record_lines(void);
void ftf_record_drop_to(int count);
/* dir "/" stem "-" pid "-" start [ "-" counter ] suffix into `out`. */
void ftf_record_name(char *out, size_t size, const char *directory, const char *suffix, int counter);
/* Makes the run folder again, which somebody has removed: its last two components. */
void ftf_record_make_directory(void);

#endif

/* CONTEXT: SIGNAL. One function a member of the record (docs/schema.md): each renders its line into ftf.line, newline and
   comma included, and writes nothing. */
#ifndef FTF_MEMBERS_H
#define FTF_MEMBERS_H

#include "ftf_state.h"

/* ftf_members_fault.c: what happened */
void ftf_member_schema(void);
void ftf_member_time(void);
void ftf_member_process(void);
void ftf_member_signal(void);
void ftf_member_registers(void);
void ftf_member_marks(void);
void ftf_member_abort_message(void);
void ftf_member_exception(void);
void ftf_member_code(void);
void ftf_member_stack(void);
void ftf_member_walk(const char *name);
void ftf_member_dump(const char *name);

/* ftf_members_process.c: the process it happened in */
void ftf_member_crashers(void);
void ftf_member_signals_seen(void);
void ftf_member_handlers(void);
void ftf_member_job(void);
void ftf_member_limits(void);
void ftf_member_inventory(void);
void ftf_member_modules(void);
void ftf_member_threads(void);
void ftf_member_status(void);
void ftf_member_maps(void);
void ftf_member_stages(void);
void ftf_member_end(const char *how, uint64_t next);

/* Who sent a signal, or null. */
void ftf_put_sender(struct ftf_text *text, bool known, int pid, unsigned uid);
const char *ftf_signal_name(int sig);
/* Does `info` say that a process sent the signal (kill, tgkill, sigqueue), not the kernel? */
bool ftf_was_sent(const siginfo_t *info);
void ftf_put_cause(struct ftf_text *text, const struct ftf_stage *stage);

#endif

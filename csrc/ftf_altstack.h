/* CONTEXT: NORMAL. Guarded memory: alternate signal stacks of threads and the handler's own stacks. */
#ifndef FTF_ALTSTACK_H
#define FTF_ALTSTACK_H

#include "ftf_state.h"

/* Memory with an unreadable page below it, the side to which stacks grow; size rounded up to pages. base NULL on failure (errno set). */
struct ftf_stack ftf_stack_map(size_t size);
/* Gives the calling thread an alternate stack with guard pages unless it has a good one already. */
void ftf_altstack_check(void);
/* Takes ours away from the calling thread again. */
void ftf_altstack_remove(void);
int ftf_altstack_count(void); /* made so far, for tests */

#endif

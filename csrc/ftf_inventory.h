/* CONTEXT: NORMAL. What was loaded (packages, versions, driver), found by a short-lived process outside the job. */
#ifndef FTF_INVENTORY_H
#define FTF_INVENTORY_H

#include "ftf_state.h"

/* Called by the watcher each period. Starts the process after install and when libraries have been loaded since, fetches
   its answer, never waits. */
void ftf_inventory_tick(void);
void ftf_inventory_forget(void);
/* Was the process ever started? */
bool ftf_inventory_started(void);

#endif

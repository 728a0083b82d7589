/* CONTEXT: NORMAL. Preparing everything the handler needs, so that at the crash nothing has to be made. Knows no Python:
   tests drive it from plain C too. */
#ifndef FTF_INSTALL_H
#define FTF_INSTALL_H

#include "ftf_state.h"

struct ftf_config {
    const char *directory; /* absolute */
    const char *stem; /* "host-rank0" */
    const char *static_members;
    size_t static_size;
    char **helper_argv; /* NULL-terminated lists; copied */
    char **helper_env;
    char **inventory_argv;
    const char *memory_usage_file;
    const char *memory_limit_file;
    bool raw_stack;
};

/* Returns 0, or -errno with *failed naming the system call. A second call changes the configuration. */
int ftf_install(const struct ftf_config *config, const char **failed);
void ftf_uninstall(void);
/* After the interpreter's finalization put an older handler back: take ours again. */
void ftf_install_recheck(void);
/* Finds what can appear with a late dlopen: libstdc++'s exception globals. */
void ftf_install_refresh(void);
/* A record was written and the process lives on (the signal was sent and survived): be ready for the next. */
void ftf_install_rearm(void);
/* Keeps a descriptor at a high number, out of the way of jobs that count on low ones or close them wholesale. */
void ftf_remember(struct ftf_fd *slot, int fd);
/* Closes it, unless the job has made the number its own. */
void ftf_forget(struct ftf_fd *slot);
int ftf_set_python_dumper(int signal_current, int signal_all, int fd);

#endif

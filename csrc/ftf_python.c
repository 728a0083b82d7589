/* CONTEXT: SIGNAL. Python stacks, by CPython's own dumper.

   faulthandler.register(sig, file=fd) installs a C handler that dumps and returns; install reads its address from
   sigaction(2) and gives the signal back. That is public API on every CPython (the dumper functions themselves are hidden
   in 3.10 and 3.13). Two registrations: the current thread alone, because the all-threads dump stops after 100 threads
   and may leave it out. The dumper walks unsynchronised lists and may crash, and it holds a static guard while it runs:
   so it runs in the sandbox, writing into a pipe or a memfd, and after a cut it is never called again. */
#include "ftf_python.h"

#include "ftf_sys.h"

const char *ftf_python_refusal(void)
{
    if (ftf.dump_current == 0)
        return "no dumper registered";
    if (ftf.python_state == 2)
        return "interpreter finalized";
    if (ftf.dumper_broken)
        return "dumper cut before";
    return 0;
}

static int pipe_end = -1; /* in the sandbox's own descriptor table */

void ftf_python_prepare(void)
{
    ftf.dump_text_used = 0;
    pipe_end = -1;
    if (ftf_fd_is_ours(&ftf.dump_fd)) {
        ftf_ftruncate(ftf.dump_fd.fd, 0);
        ftf_lseek(ftf.dump_fd.fd, 0, SEEK_SET);
    }
}

static void copy_from(int fd)
{
    size_t used = 0;
    while (used < ftf.dump_text_size) {
        long got = ftf_pread(fd, ftf.dump_text + used, ftf.dump_text_size - used, (long)used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    ftf.dump_text_used = used;
}

static void drain_pipe(void)
{
    while (pipe_end >= 0 && ftf.dump_text_used < ftf.dump_text_size) {
        long got = ftf_read(pipe_end, ftf.dump_text + ftf.dump_text_used, ftf.dump_text_size - ftf.dump_text_used);
        if (got <= 0)
            break;
        ftf.dump_text_used += (size_t)got;
    }
}

/* The dumper makes thousands of tiny writes; into a pipe they cost half of what they cost into a memfd. The pipe must hold
   everything, because its reader comes after the writer, and must not block where it cannot. */
static bool pipe_descriptor(void)
{
    int ends[2];
    pipe_end = -1;
    if (!ftf.in_sandbox || ftf_syscall2(SYS_pipe2, ends, O_NONBLOCK) != 0)
        return false;
    if (ftf_syscall3(SYS_fcntl, ends[1], F_SETPIPE_SZ, (long)ftf.dump_text_size) < 0 ||
        ftf_syscall3(SYS_dup3, ends[1], ftf.dump_fd.fd, 0) < 0) {
        ftf_close(ends[0]);
        ftf_close(ends[1]);
        return false;
    }
    pipe_end = ends[0];
    ftf.sandbox_rescue = drain_pipe;
    return true;
}

/* In the sandbox the descriptor table is a copy: if the job has taken our number, put a fresh memfd there; nobody else
   sees it. In the handler's own thread that would overwrite the job's file, so then there is no dump. */
static bool own_descriptor(void)
{
    if (!ftf.foreign_process && ftf_fd_is_ours(&ftf.dump_fd))
        return true;
    if (!ftf.in_sandbox)
        return false;
    long fd = ftf_syscall2(SYS_memfd_create, "ftforensics-dump", 0);
    if (fd == -EMFILE) {
        ftf_close(ftf.dump_fd.fd);
        fd = ftf_syscall2(SYS_memfd_create, "ftforensics-dump", 0);
    }
    return fd >= 0 && (fd == ftf.dump_fd.fd || ftf_syscall3(SYS_dup3, fd, ftf.dump_fd.fd, 0) >= 0);
}

static void dump(void (*dumper)(int), int sig)
{
    if (pipe_descriptor()) {
        dumper(sig);
        drain_pipe();
    } else if (own_descriptor()) {
        dumper(sig);
        copy_from(ftf.dump_fd.fd);
    }
}

void ftf_python_dump_current(void) { dump(ftf.dump_current, ftf.dump_current_signal); }
void ftf_python_dump_all(void) { dump(ftf.dump_all, ftf.dump_all_signal); }

void ftf_python_collect(void)
{
    if (ftf.dump_text_used == 0 && pipe_end < 0 && !ftf.foreign_process && ftf_fd_is_ours(&ftf.dump_fd))
        copy_from(ftf.dump_fd.fd);
}

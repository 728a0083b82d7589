/* CONTEXT: SIGNAL. Python stacks, by CPython's own dumper.

   faulthandler.register(sig, file=fd) installs a C handler that dumps and returns; install reads its address from
   sigaction(2) and gives the signal back. That is public API on every CPython (the dumper functions themselves are hidden
   in 3.10 and 3.13). Two registrations: the current thread alone, because the all-threads dump stops after 100 threads
   and may leave it out. The dumper walks unsynchronised lists and may crash, and it holds a static guard while it runs:
   so it runs in the sandbox, writing into a memfd, and after a cut it is never called again. */
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

void ftf_python_prepare(void)
{
    ftf.dump_text_used = 0;
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
    if (!own_descriptor())
        return;
    dumper(sig);
    copy_from(ftf.dump_fd.fd);
}

void ftf_python_dump_current(void) { dump(ftf.dump_current, ftf.dump_current_signal); }
void ftf_python_dump_all(void) { dump(ftf.dump_all, ftf.dump_all_signal); }

void ftf_python_collect(void)
{
    if (ftf.dump_text_used == 0 && !ftf.foreign_process && ftf_fd_is_ours(&ftf.dump_fd))
        copy_from(ftf.dump_fd.fd);
}

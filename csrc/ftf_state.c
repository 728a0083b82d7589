/* CONTEXT: SIGNAL. The one instance of the state and the few questions about it that several files ask. */
#include "ftf_state.h"

struct ftf_state ftf = {
    .record_fd = {.fd = -1},
    .maps_fd = {.fd = -1},
    .task_fd = {.fd = -1},
    .spare_fd = {.fd = -1},
    .dump_fd = {.fd = -1},
    .user_faulthandler_fd = -1,
    .output_fd = -1,
    .deadline_timer = -1,
};

const int ftf_fault_signals[FTF_FAULT_SIGNALS] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
const int ftf_noted_signals[FTF_NOTED_SIGNALS] = {SIGTERM, SIGHUP, SIGINT, SIGXCPU, SIGUSR1};

int ftf_fault_index(int sig)
{
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++)
        if (ftf_fault_signals[i] == sig)
            return i;
    return -1;
}

bool ftf_fd_is_ours(const struct ftf_fd *fd)
{
    struct stat st;
    return fd->fd >= 0 && ftf_fstat(fd->fd, &st) == 0 && (uint64_t)st.st_dev == fd->device &&
           (uint64_t)st.st_ino == fd->inode;
}

int ftf_open_somehow(const char *path, int flags, int mode)
{
    long fd = ftf_open(path, flags | O_CLOEXEC, mode);
    if ((fd == -EMFILE || fd == -ENFILE) && ftf_fd_is_ours(&ftf.spare_fd)) {
        ftf_close(ftf.spare_fd.fd);
        ftf.spare_fd.fd = -1;
        fd = ftf_open(path, flags | O_CLOEXEC, mode);
    }
    return (int)fd;
}

long ftf_read_task_file(int tid, const char *name, char *buffer, size_t size)
{
    char path[64];
    struct ftf_text text = {path, sizeof path - 1, 0, false};
    ftf_puts(&text, "/proc/self/task/");
    ftf_put_decimal(&text, tid);
    ftf_puts(&text, "/");
    ftf_puts(&text, name);
    path[text.used] = 0;
    int fd = ftf_open_somehow(path, O_RDONLY, 0);
    if (fd < 0)
        return fd;
    long got = ftf_read(fd, buffer, size);
    ftf_close(fd);
    return got;
}

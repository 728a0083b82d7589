/* CONTEXT: SIGNAL. See ftf_record.h.

   At install an unnamed file (O_TMPFILE) is opened in the run folder and its space reserved. A process that ends well, or
   by _exit, exec or SIGKILL, leaves nothing, without any clean-up code. At a crash the file is linked to its name. Where
   that is not possible (NFS, descriptor closed by the job) the file is created by name; where the run folder cannot be
   written any more, in /tmp.

   Making the name is where a dead network file system blocks, often for ever, so the two opening functions are steps for
   the sandbox, which shares our descriptors for them. */
#include "ftf_record.h"

#include <string.h>

#define LINES 64

static long line_starts[LINES];
static int line_count;
static uint64_t pending_before;

void ftf_record_name(char *out, size_t size, const char *directory, const char *suffix, int counter)
{
    struct ftf_text text = {out, size - 1, 0, false};
    ftf_puts(&text, directory);
    ftf_puts(&text, "/");
    ftf_puts(&text, ftf.stem);
    ftf_puts(&text, "-");
    ftf_put_decimal(&text, ftf.foreign_process ? ftf_getpid() : ftf.pid);
    ftf_puts(&text, "-");
    ftf_put_decimal(&text, (int64_t)ftf.start_ticks);
    if (counter > 0) {
        ftf_puts(&text, "-");
        ftf_put_decimal(&text, counter);
    }
    ftf_puts(&text, suffix);
    out[text.used] = 0;
}

void ftf_record_make_directory(void)
{
    char parent[FTF_PATH_SIZE];
    size_t length = ftf_string_length(ftf.directory);
    memcpy(parent, ftf.directory, length + 1);
    while (length > 0 && parent[length] != '/')
        length--;
    parent[length] = 0;
    if (length > 0)
        ftf_mkdir(parent, 0755);
    ftf_mkdir(ftf.directory, 0700);
}

static long link_unnamed(void)
{
    char name[40];
    struct ftf_text text = {name, sizeof name - 1, 0, false};
    ftf_puts(&text, "/proc/self/fd/");
    ftf_put_decimal(&text, ftf.record_fd.fd);
    name[text.used] = 0;
    return ftf_linkat(name, ftf.path, AT_SYMLINK_FOLLOW);
}

static long create_named(void)
{
    long fd = ftf_open_somehow(ftf.path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd >= 0)
        ftf.output_fd = (int)fd;
    return fd < 0 ? fd : 0;
}

/* Where the path leads elsewhere now: the job has changed its root, or mounted something over it. */
static long create_in_folder(void)
{
    const char *name = ftf.path + ftf_string_length(ftf.path);
    while (name > ftf.path && name[-1] != '/')
        name--;
    if (!ftf_fd_is_ours(&ftf.spare_fd))
        return -EBADF;
    long fd =
        ftf_syscall4(SYS_openat, ftf.spare_fd.fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        ftf.output_fd = (int)fd;
    return fd < 0 ? fd : 0;
}

/* Tries names with rising counters; a record is never given up because a name is taken. */
static long appear(long (*make)(void), const char *directory)
{
    long result = -EEXIST;
    for (int counter = 0; counter < 100 && result == -EEXIST; counter++) {
        ftf_record_name(ftf.path, sizeof ftf.path, directory, FTF_RECORD_SUFFIX, counter);
        result = make();
        if (result == -ENOENT && directory == ftf.directory) {
            ftf_record_make_directory();
            result = make();
        }
    }
    return result;
}

/* An unnamed file of the job's own could have got our descriptor and our file's freed inode number, but not be empty too. */
static bool unnamed_is_ours(void)
{
    struct stat st;
    return !ftf.foreign_process && ftf_fd_is_ours(&ftf.record_fd) && ftf_fstat(ftf.record_fd.fd, &st) == 0 &&
           st.st_nlink == 0 && st.st_size == 0 && S_ISREG(st.st_mode);
}

/* Limits on file size and closed pipes end a process by a signal. Ours stay blocked while we write; afterwards they are
   taken away, so that the process dies of what it died of. */
static const int side_effects[] = {SIGXFSZ, SIGPIPE};

void ftf_record_begin(void)
{
    line_count = 0;
    pending_before = ftf_pending();
    uint64_t set = 0;
    for (size_t i = 0; i < FTF_LENGTH(side_effects); i++)
        set |= ftf_signal_bit(side_effects[i]);
    ftf_sigprocmask(SIG_BLOCK, &set, 0);
}

void ftf_record_finish(void)
{
    for (size_t i = 0; i < FTF_LENGTH(side_effects); i++) {
        uint64_t bit = ftf_signal_bit(side_effects[i]);
        if (!(pending_before & bit))
            ftf_take_pending(&bit);
    }
    /* The number is not written to again: the process may live on (the signal was sent and survived). */
    if (ftf.output_fd < 0)
        return;
    if (ftf.output_fd == ftf.record_fd.fd && !ftf.foreign_process)
        ftf.record_fd.fd = -1;
    ftf_close(ftf.output_fd);
    ftf.output_fd = -1;
}

int ftf_record_open(void)
{
    if (unnamed_is_ours() && appear(link_unnamed, ftf.directory) == 0) {
        ftf.output_fd = ftf.record_fd.fd;
        return 0;
    }
    long result = appear(create_named, ftf.directory);
    return (int)(result == 0 ? 0 : appear(create_in_folder, ftf.directory));
}

void ftf_record_discard(void)
{
    if (ftf.output_fd >= 0)
        ftf_unlink(ftf.path);
    ftf.output_fd = -1;
}

int ftf_record_open_elsewhere(void)
{
    ftf_record_discard();
    return (int)appear(create_named, "/tmp");
}

int ftf_record_lines(void) { return line_count; }

void ftf_record_drop_to(int count)
{
    if (count >= line_count)
        return;
    line_count = count;
    ftf_ftruncate(ftf.output_fd, line_starts[count]);
    ftf_lseek(ftf.output_fd, line_starts[count], SEEK_SET);
}

int ftf_record_write_line(void)
{
    if (ftf.output_fd < 0)
        return -EBADF;
    if (ftf.line.overflow)
        return -EOVERFLOW;
    long start = ftf_lseek(ftf.output_fd, 0, SEEK_CUR);
    size_t done = 0;
    while (done < ftf.line.used) {
        long got = ftf_write(ftf.output_fd, ftf.line.data + done, ftf.line.used - done);
        if (got == -EINTR)
            continue;
        if (got <= 0) {
            if (start >= 0) { /* no half lines: later, shorter ones may still fit */
                ftf_ftruncate(ftf.output_fd, start);
                ftf_lseek(ftf.output_fd, start, SEEK_SET);
            }
            return got < 0 ? (int)got : -EIO;
        }
        done += (size_t)got;
    }
    if (line_count < LINES)
        line_starts[line_count++] = start;
    return 0;
}

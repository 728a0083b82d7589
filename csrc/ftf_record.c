/* CONTEXT: SIGNAL. See ftf_record.h.

   At install an unnamed file (O_TMPFILE) is opened in the run folder and its space reserved. A process that ends well, or
   by _exit, exec or SIGKILL, leaves nothing, without any clean-up code. At a crash the file is linked to its name. Where
   that is not possible (NFS, descriptor closed by the job) the file is created by name; where the run folder cannot be
   written any more, in /tmp. */
#include "ftf_record.h"

#include <string.h>

void ftf_record_name(char *out, size_t size, const char *directory, int counter)
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
    ftf_puts(&text, ".crash.json");
    out[text.used] = 0;
}

/* The run folder may have been removed: make its last two components again. */
static void make_directory(void)
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

/* Tries names with rising counters; a record is never given up because a name is taken. */
static long appear(long (*make)(void), const char *directory)
{
    long result = -EEXIST;
    for (int counter = 0; counter < 100 && result == -EEXIST; counter++) {
        ftf_record_name(ftf.path, sizeof ftf.path, directory, counter);
        result = make();
        if (result == -ENOENT && directory == ftf.directory) {
            make_directory();
            result = make();
        }
    }
    return result;
}

int ftf_record_open(void)
{
    if (!ftf.foreign_process && ftf_fd_is_ours(&ftf.record_fd)) {
        ftf_lseek(ftf.record_fd.fd, 0, SEEK_SET);
        if (appear(link_unnamed, ftf.directory) == 0) {
            ftf.output_fd = ftf.record_fd.fd;
            return 0;
        }
    }
    long result = appear(create_named, ftf.directory);
    if (result != 0 && appear(create_named, "/tmp") == 0)
        result = 0;
    return (int)result;
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
    return 0;
}

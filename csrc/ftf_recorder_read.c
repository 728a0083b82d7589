/* CONTEXT: NORMAL. See ftf_recorder_read.h. */
#include "ftf_recorder_read.h"

#include "ftf_install.h"

#include <stdlib.h>
#include <string.h>

#define RETRY 50

static char shared[32768];

void ftf_kept_close(struct ftf_kept_file *file) { ftf_forget(&file->fd); }

static void open_again(struct ftf_kept_file *file)
{
    ftf_forget(&file->fd);
    file->retry = RETRY;
    ftf_remember(&file->fd, (int)ftf_open(file->path, O_RDONLY | O_CLOEXEC, 0));
}

void ftf_kept_open(struct ftf_kept_file *file, const char *path)
{
    ftf_forget(&file->fd);
    file->path[0] = 0;
    if (!path || path[0] == 0 || strlen(path) >= sizeof file->path)
        return;
    strcpy(file->path, path);
    open_again(file);
}

static const char *text_of(long got)
{
    if (got <= 0)
        return 0;
    shared[got] = 0;
    return shared;
}

const char *ftf_read_kept(struct ftf_kept_file *file)
{
    if (file->path[0] == 0)
        return 0;
    if (!ftf_fd_is_ours(&file->fd)) {
        if (file->retry-- > 0 && file->fd.fd < 0)
            return 0;
        file->fd.fd = -1; /* whoever has the number now keeps it */
        open_again(file);
        if (file->fd.fd < 0)
            return 0;
    }
    return text_of(ftf_pread(file->fd.fd, shared, sizeof shared - 1, 0));
}

const char *ftf_read_file(const char *path)
{
    int fd = (int)ftf_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    size_t used = 0;
    long got;
    /* /proc gives large files a page at a time. */
    while (used < sizeof shared - 1 && (got = ftf_read(fd, shared + used, sizeof shared - 1 - used)) > 0)
        used += (size_t)got;
    ftf_close(fd);
    return text_of((long)used);
}

uint64_t ftf_number(const char *text)
{
    if (!text)
        return FTF_RING_UNKNOWN;
    while (*text == ' ' || *text == '\t')
        text++;
    if (strncmp(text, "max", 3) == 0)
        return FTF_RING_UNLIMITED;
    if (*text < '0' || *text > '9')
        return FTF_RING_UNKNOWN;
    return strtoull(text, 0, 10);
}

uint64_t ftf_number_of(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != 0)
        if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == '\t'))
            return ftf_number(line + length);
    return FTF_RING_UNKNOWN;
}

uint64_t ftf_kb(uint64_t kilobytes) { return kilobytes >= FTF_RING_UNLIMITED ? kilobytes : kilobytes * 1024; }

struct linux_dirent64 {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

int ftf_numbers_in(const char *directory, int *numbers, int capacity)
{
    int count = 0;
    long got;
    int fd = (int)ftf_open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    while (count < capacity && (got = ftf_syscall3(SYS_getdents64, fd, shared, sizeof shared)) > 0)
        for (long at = 0; at < got && count < capacity;) {
            const struct linux_dirent64 *entry = (const struct linux_dirent64 *)(shared + at);
            at += entry->length;
            if (entry->name[0] >= '1' && entry->name[0] <= '9')
                numbers[count++] = atoi(entry->name);
        }
    ftf_close(fd);
    return count;
}

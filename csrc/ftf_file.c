/* CONTEXT: SIGNAL. See ftf_file.h. */
#include "ftf_file.h"

#include "ftf_maps.h"

#include <string.h>
#include <sys/vfs.h>

#define out (&ftf.line)

static struct {
    bool stat_ok, statfs_ok;
    int64_t size, free;
    uint64_t filesystem;
    char path[FTF_PATH_SIZE];
} answer;

void ftf_file_ask(void)
{
    struct stat st;
    struct statfs fs;
    const struct ftf_map *map = ftf_maps_find((uint64_t)(uintptr_t)ftf.info->si_addr);
    answer.stat_ok = answer.statfs_ok = false;
    answer.path[0] = 0;
    if (!map || map->name_length >= sizeof answer.path || ftf_maps_name(map)[0] != '/')
        return;
    memcpy(answer.path, ftf_maps_name(map), map->name_length);
    answer.path[map->name_length] = 0;
    if (ftf_syscall4(SYS_newfstatat, AT_FDCWD, answer.path, &st, 0) == 0 && (uint64_t)st.st_ino == map->inode) {
        answer.size = st.st_size;
        answer.stat_ok = true;
    }
    if (answer.stat_ok && ftf_syscall2(SYS_statfs, answer.path, &fs) == 0) {
        answer.filesystem = (uint64_t)fs.f_type;
        answer.free = (int64_t)fs.f_bavail * fs.f_bsize;
        answer.statfs_ok = true;
    }
}

void ftf_member_fault_file(void)
{
    ftf_puts(out, "\"fault_file\": ");
    if (ftf.signal != SIGBUS || answer.path[0] == 0) {
        ftf_puts(out, "null,\n");
        return;
    }
    ftf_puts(out, "{\"path\": ");
    ftf_put_json_string(out, answer.path, ftf_string_length(answer.path));
    ftf_puts(out, ", \"size\": ");
    if (answer.stat_ok)
        ftf_put_decimal(out, answer.size);
    else
        ftf_puts(out, "null");
    ftf_puts(out, ", \"filesystem\": ");
    if (answer.statfs_ok)
        ftf_put_decimal(out, (int64_t)answer.filesystem);
    else
        ftf_puts(out, "null");
    ftf_puts(out, ", \"free\": ");
    if (answer.statfs_ok)
        ftf_put_decimal(out, answer.free);
    else
        ftf_puts(out, "null");
    ftf_puts(out, "},\n");
}

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

static bool size_of(const char *path, const struct ftf_map *map)
{
    struct stat st;
    if (ftf_syscall4(SYS_newfstatat, AT_FDCWD, path, &st, 0) != 0 || (uint64_t)st.st_ino != map->inode)
        return false;
    answer.size = st.st_size;
    return true;
}

static void put_plain_hex(struct ftf_text *text, uint64_t value)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        if (value >> shift != 0 || shift == 0)
            ftf_put(text, &"0123456789abcdef"[value >> shift & 15], 1);
}

/* A file without a name any more, as torch makes its shared memory: through the mapping itself. Needs CAP_SYS_ADMIN or
   CAP_CHECKPOINT_RESTORE (fs/proc/base.c, proc_map_files_get_link). */
static bool size_of_deleted(const struct ftf_map *map)
{
    char path[80];
    struct ftf_text text = {path, sizeof path - 1, 0, false};
    ftf_puts(&text, "/proc/self/map_files/");
    put_plain_hex(&text, map->start);
    ftf_puts(&text, "-");
    put_plain_hex(&text, map->end);
    path[text.used] = 0;
    return size_of(path, map);
}

void ftf_file_ask(void)
{
    static const char mark[] = " (deleted)";
    struct statfs fs;
    const struct ftf_map *map = ftf_maps_find((uint64_t)(uintptr_t)ftf.info->si_addr);
    answer.stat_ok = answer.statfs_ok = false;
    answer.path[0] = 0;
    if (!map || map->name_length >= sizeof answer.path || ftf_maps_name(map)[0] != '/')
        return;
    memcpy(answer.path, ftf_maps_name(map), map->name_length);
    answer.path[map->name_length] = 0;
    answer.stat_ok = size_of(answer.path, map) || size_of_deleted(map);
    /* Of the directory: the file itself may be gone, its file system is the same. */
    char directory[FTF_PATH_SIZE];
    size_t length = map->name_length;
    if (length > sizeof mark && memcmp(answer.path + length - (sizeof mark - 1), mark, sizeof mark - 1) == 0)
        length -= sizeof mark - 1;
    while (length > 1 && answer.path[length - 1] != '/')
        length--;
    memcpy(directory, answer.path, length);
    directory[length] = 0;
    if (ftf_syscall2(SYS_statfs, directory, &fs) == 0) {
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
    ftf_put_decimal_or_null(out, answer.stat_ok, answer.size);
    ftf_puts(out, ", \"filesystem\": ");
    ftf_put_decimal_or_null(out, answer.statfs_ok, (int64_t)answer.filesystem);
    ftf_puts(out, ", \"free\": ");
    ftf_put_decimal_or_null(out, answer.statfs_ok, answer.free);
    ftf_puts(out, "},\n");
}

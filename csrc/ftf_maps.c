/* CONTEXT: SIGNAL. /proc/self/maps as text and as a sorted table. The kernel renders the file at read(2), so a descriptor
   opened at install gives today's mappings; a forked child must have opened its own, or it would read its parent's. */
#include "ftf_maps.h"

#include <string.h>

static int open_maps(bool *close_after)
{
    *close_after = false;
    if (!ftf.foreign_process && ftf_fd_is_ours(&ftf.maps_fd) && ftf_lseek(ftf.maps_fd.fd, 0, SEEK_SET) == 0)
        return ftf.maps_fd.fd;
    *close_after = true;
    return ftf_open_somehow("/proc/self/maps", O_RDONLY, 0);
}

static void parse_line(uint32_t line, uint32_t length)
{
    const char *cursor = ftf.maps_text + line;
    const char *end = cursor + length;
    struct ftf_map *map = &ftf.maps[ftf.map_count];
    map->line = line;
    map->line_length = length;
    map->start = ftf_parse_hex(&cursor, end);
    cursor++; /* '-' */
    map->end = ftf_parse_hex(&cursor, end);
    cursor++; /* ' ' */
    if (end - cursor < 5)
        return;
    map->readable = cursor[0] == 'r';
    map->writable = cursor[1] == 'w';
    map->executable = cursor[2] == 'x';
    cursor += 5;
    map->offset = ftf_parse_hex(&cursor, end);
    while (cursor < end && *cursor == ' ')
        cursor++;
    while (cursor < end && *cursor != ' ') /* device */
        cursor++;
    while (cursor < end && *cursor == ' ')
        cursor++;
    map->inode = ftf_parse_decimal(&cursor, end);
    while (cursor < end && *cursor == ' ')
        cursor++;
    map->name = (uint32_t)(cursor - ftf.maps_text);
    map->name_length = (uint32_t)(end - cursor);
    ftf.map_count++;
}

static long read_text(int fd)
{
    long got = 0;
    while (ftf.maps_text_used < ftf.maps_text_size) {
        got = ftf_read(fd, ftf.maps_text + ftf.maps_text_used, ftf.maps_text_size - ftf.maps_text_used);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            break;
        ftf.maps_text_used += (size_t)got;
    }
    return got;
}

int ftf_maps_read(void)
{
    bool close_after;
    int fd = open_maps(&close_after);
    ftf.map_count = 0;
    ftf.maps_text_used = 0;
    ftf.maps_truncated = false;
    long got = fd < 0 ? fd : read_text(fd);
    if (close_after && fd >= 0)
        ftf_close(fd);
    if (got == 0 && ftf.maps_text_used == 0) { /* the main thread has ended by itself: "self" has no memory any more */
        fd = ftf_open_somehow("/proc/thread-self/maps", O_RDONLY, 0);
        got = fd < 0 ? fd : read_text(fd);
        if (fd >= 0)
            ftf_close(fd);
    }
    if (ftf.maps_text_used == 0)
        return (int)got;
    const char *line = ftf.maps_text;
    const char *end = line + ftf.maps_text_used;
    for (const char *newline; (newline = memchr(line, '\n', (size_t)(end - line))); line = newline + 1) {
        if (ftf.map_count == FTF_MAX_MAPS) {
            ftf.maps_truncated = true;
            break;
        }
        parse_line((uint32_t)(line - ftf.maps_text), (uint32_t)(newline - line));
    }
    if (ftf.maps_text_used == ftf.maps_text_size)
        ftf.maps_truncated = true;
    return 0;
}

const struct ftf_map *ftf_maps_find(uint64_t address)
{
    int low = 0, high = ftf.map_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ftf.maps[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ftf.map_count && ftf.maps[low].start <= address ? &ftf.maps[low] : 0;
}

bool ftf_maps_executable(uint64_t address)
{
    const struct ftf_map *map = ftf_maps_find(address);
    return map && map->executable;
}

const char *ftf_maps_name(const struct ftf_map *map) { return ftf.maps_text + map->name; }

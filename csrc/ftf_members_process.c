/* CONTEXT: SIGNAL. The members that tell of the process the crash happened in. Shapes: docs/schema.md. */
#include "ftf_members.h"

#include "ftf_handler.h"
#include "ftf_maps.h"
#include "ftf_peek.h"
#include "ftf_ring_write.h"
#include "ftf_step.h"

#include <elf.h>
#include <string.h>

#define out (&ftf.line)

void ftf_member_crashers(void)
{
    unsigned count = ftf.crasher_count < FTF_MAX_CRASHERS ? ftf.crasher_count : FTF_MAX_CRASHERS;
    ftf_puts(out, "\"other_crashers\": [");
    for (unsigned i = 0; i < count; i++) {
        ftf_puts(out, i ? ", " : "");
        ftf_put_decimal(out, ftf.crashers[i]);
    }
    ftf_puts(out, "],\n");
}

void ftf_member_signals_seen(void)
{
    unsigned total = ftf.seen_count;
    unsigned first = total > FTF_SEEN_SIZE ? total - FTF_SEEN_SIZE : 0;
    ftf_puts(out, "\"signals_seen\": [");
    for (unsigned i = first; i < total; i++) {
        const struct ftf_seen *seen = &ftf.seen[i % FTF_SEEN_SIZE];
        const char *name = ftf_signal_name(seen->signal);
        ftf_puts(out, i == first ? "{\"name\": \"" : ", {\"name\": \"");
        ftf_puts(out, name ? name : "?");
        ftf_puts(out, "\", \"at\": ");
        ftf_put_seconds(out, seen->ns);
        ftf_puts(out, ", \"sender\": ");
        ftf_put_sender(out, seen->code <= 0, seen->pid, seen->uid);
        ftf_puts(out, "}");
    }
    ftf_puts(out, "],\n");
}

static void put_chained(const struct ftf_chained *entry)
{
    uint64_t address = (uint64_t)(uintptr_t)entry->action.handler;
    const struct ftf_map *map = ftf_maps_find(address);
    ftf_puts(out, "{\"address\": ");
    ftf_put_address(out, address);
    ftf_puts(out, ", \"library\": ");
    if (entry->library[0])
        ftf_put_json_string(out, entry->library, ftf_string_length(entry->library));
    else if (map && map->name_length)
        ftf_put_json_string(out, ftf_maps_name(map), map->name_length);
    else
        ftf_puts(out, "null");
    ftf_puts(out, ", \"offset\": ");
    ftf_put_address_or_null(out, entry->library[0] && address > entry->library_base, address - entry->library_base);
    ftf_puts(out, ", \"taken_back\": ");
    ftf_put_bool(out, entry->taken_back);
    ftf_puts(out, ", \"at\": ");
    if (entry->noticed_ns)
        ftf_put_seconds(out, entry->noticed_ns);
    else
        ftf_puts(out, "null");
    ftf_puts(out, "}");
}

void ftf_member_handlers(void)
{
    ftf_puts(out, "\"handlers\": [");
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++) {
        struct ftf_action current = {0};
        ftf_sigaction(ftf_fault_signals[i], 0, &current);
        ftf_puts(out, i ? ", {\"signal\": \"" : "{\"signal\": \"");
        ftf_puts(out, ftf_signal_name(ftf_fault_signals[i]));
        ftf_puts(out, "\", \"ours\": ");
        ftf_put_bool(out, current.handler == ftf_on_fault);
        ftf_puts(out, ", \"current\": ");
        ftf_put_address(out, (uint64_t)(uintptr_t)current.handler);
        ftf_puts(out, ", \"previous\": [");
        for (int k = ftf.chains[i].count - 1, first = 1; k >= 0; k--, first = 0) {
            ftf_puts(out, first ? "" : ", ");
            put_chained(&ftf.chains[i].entries[k]);
        }
        ftf_puts(out, "]}");
    }
    ftf_puts(out, "],\n");
}

void ftf_member_job(void)
{
    if (ftf.static_members)
        ftf_put(out, ftf.static_members, ftf.static_size);
}

void ftf_member_limits(void)
{
    static const struct {
        const char *name;
        int resource;
    } table[] = {{"core", RLIMIT_CORE},
                 {"nofile", RLIMIT_NOFILE},
                 {"nproc", RLIMIT_NPROC},
                 {"stack", RLIMIT_STACK},
                 {"address_space", RLIMIT_AS}};
    ftf_puts(out, "\"limits\": {");
    for (size_t i = 0; i < FTF_LENGTH(table); i++) {
        struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
        ftf_syscall4(SYS_prlimit64, 0, table[i].resource, 0, &limit);
        ftf_puts(out, i ? ", \"" : "\"");
        ftf_puts(out, table[i].name);
        ftf_puts(out, "\": ");
        ftf_put_decimal_or_null(out, limit.rlim_cur != RLIM_INFINITY, (int64_t)limit.rlim_cur);
    }
    ftf_puts(out, "},\n");
}

void ftf_member_inventory(void)
{
    char *lines = __atomic_load_n(&ftf.inventory, __ATOMIC_ACQUIRE);
    if (lines)
        ftf_put(out, lines, ftf.inventory_size);
    else
        ftf_puts(out, "\"libraries\": null,\n\"driver\": null,\n");
}

/* The first page of a mapped library, which nearly always holds all that is asked of it: one system call a library. */
struct first_page {
    uint64_t base;
    size_t size;
    uint8_t bytes[4096];
};

static bool read_library(const struct first_page *page, uint64_t address, void *to, size_t size)
{
    if (address >= page->base && size <= page->size && address - page->base <= page->size - size) {
        memcpy(to, page->bytes + (address - page->base), size);
        return true;
    }
    return ftf_peek(address, to, size);
}

/* man elf, "Notes": the one of GNU that is a build-id. Returns its length, 0 for none. */
static size_t find_build_id(const uint8_t *notes, size_t length, uint8_t *id, size_t size)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= length;) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note;
        if (note.n_namesz > length || note.n_descsz > length)
            return 0;
        size_t data = name + ((note.n_namesz + 3) & ~3u);
        if (data + note.n_descsz > length)
            return 0;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0 &&
            note.n_descsz <= size) {
            memcpy(id, notes + data, note.n_descsz);
            return note.n_descsz;
        }
        at = data + ((note.n_descsz + 3) & ~3u);
    }
    return 0;
}

/* From mapped memory, because the file may have been replaced since. Returns the id's length, 0 for none. */
static size_t build_id(uint64_t base, uint8_t *id, size_t size)
{
    static struct first_page page;
    Elf64_Ehdr header;
    Elf64_Phdr segments[64];
    uint8_t notes[1024];
    page.base = base;
    page.size = ftf_peek_some(base, page.bytes, sizeof page.bytes);
    if (!read_library(&page, base, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 || header.e_phnum > FTF_LENGTH(segments) ||
        !read_library(&page, base + header.e_phoff, segments, header.e_phnum * sizeof segments[0]))
        return 0;
    uint64_t bias = base;
    for (int i = header.e_phnum - 1; i >= 0; i--)
        if (segments[i].p_type == PT_LOAD)
            bias = base - (segments[i].p_vaddr - segments[i].p_offset); /* the first one remains */
    for (int i = 0; i < header.e_phnum; i++) {
        if (segments[i].p_type != PT_NOTE)
            continue;
        size_t length = segments[i].p_memsz < sizeof notes ? segments[i].p_memsz : sizeof notes;
        if (!read_library(&page, bias + segments[i].p_vaddr, notes, length))
            continue;
        size_t found = find_build_id(notes, length, id, size);
        if (found)
            return found;
    }
    return 0;
}

static bool same_file(const struct ftf_map *left, const struct ftf_map *right)
{
    return left->name_length == right->name_length && left->inode == right->inode &&
           memcmp(ftf_maps_name(left), ftf_maps_name(right), left->name_length) == 0;
}

static bool is_deleted(const struct ftf_map *map)
{
    static const char mark[] = " (deleted)";
    size_t length = sizeof mark - 1;
    return map->name_length > length && memcmp(ftf_maps_name(map) + map->name_length - length, mark, length) == 0;
}

void ftf_member_modules(void)
{
    bool first = true;
    ftf_puts(out, "\"modules\": [");
    for (int i = 0; i < ftf.map_count; i++) {
        const struct ftf_map *map = &ftf.maps[i];
        if (map->name_length == 0 || (ftf_maps_name(map)[0] != '/' && ftf_maps_name(map)[0] != '['))
            continue;
        if (map->offset != 0 || (i > 0 && same_file(map, map - 1)))
            continue;
        int last = i;
        bool executable = map->executable;
        /* A library's mappings follow each other; an anonymous one (bss) may stand between. */
        while (last + 1 < ftf.map_count && (same_file(map, &ftf.maps[last + 1]) ||
                                            (last + 2 < ftf.map_count && ftf.maps[last + 1].name_length == 0 &&
                                             same_file(map, &ftf.maps[last + 2]) && ftf.maps[last + 2].offset != 0)))
            executable |= ftf.maps[++last].executable;
        if (!executable || ftf_starts_with(ftf_maps_name(map), "[vsyscall"))
            continue;
        uint8_t id[64];
        size_t id_length = map->readable ? build_id(map->start, id, sizeof id) : 0;
        bool deleted = is_deleted(map);
        ftf_puts(out, first ? "{\"path\": " : ", {\"path\": ");
        first = false;
        ftf_put_json_string(out, ftf_maps_name(map), map->name_length - (deleted ? 10 : 0));
        ftf_puts(out, ", \"base\": ");
        ftf_put_address(out, map->start);
        ftf_puts(out, ", \"end\": ");
        ftf_put_address(out, ftf.maps[last].end);
        ftf_puts(out, ", \"build_id\": ");
        if (id_length) {
            ftf_puts(out, "\"");
            ftf_put_hex_bytes(out, id, id_length);
            ftf_puts(out, "\"");
        } else {
            ftf_puts(out, "null");
        }
        ftf_puts(out, ", \"deleted\": ");
        ftf_put_bool(out, deleted);
        ftf_puts(out, ", \"inode\": ");
        ftf_put_decimal(out, (int64_t)map->inode);
        ftf_puts(out, "}");
    }
    ftf_puts(out, "],\n");
}

static void put_thread_name(const struct ftf_thread *thread)
{
    if (thread->held) {
        ftf_put_json_string(out, thread->name, ftf_string_length(thread->name));
        return;
    }
    char name[32];
    long got = ftf_read_task_file(thread->tid, "comm", name, sizeof name);
    if (got > 0)
        ftf_put_json_string(out, name, (size_t)got - (name[got - 1] == '\n'));
    else
        ftf_puts(out, "null");
}

void ftf_member_threads(void)
{
    ftf_puts(out, "\"threads\": [");
    for (int i = 0; i < ftf.thread_count; i++) {
        const struct ftf_thread *thread = &ftf.threads[i];
        ftf_puts(out, i ? ", {\"tid\": " : "{\"tid\": ");
        ftf_put_decimal(out, thread->tid);
        ftf_puts(out, ", \"name\": ");
        put_thread_name(thread);
        ftf_puts(out, ", \"held\": ");
        if (thread->tid == ftf_gettid() || thread->tid == ftf.watcher_tid)
            ftf_puts(out, "null");
        else
            ftf_put_bool(out, thread->held);
        ftf_puts(out, "}");
    }
    ftf_puts(out, "],\n");
}

static void put_lines(const char *text, size_t length)
{
    bool first = true;
    ftf_puts(out, "[");
    for (size_t start = 0; start < length;) {
        size_t end = start;
        while (end < length && text[end] != '\n')
            end++;
        ftf_puts(out, first ? "" : ", ");
        first = false;
        ftf_put_json_string(out, text + start, end - start);
        start = end + 1;
    }
    ftf_puts(out, "]");
}

void ftf_member_status(void)
{
    int fd = ftf_open_somehow("/proc/self/status", O_RDONLY, 0);
    long got = fd < 0 ? -1 : ftf_read(fd, ftf.scratch, 16384);
    if (fd >= 0)
        ftf_close(fd);
    ftf_puts(out, "\"status\": ");
    if (got > 0)
        put_lines((const char *)ftf.scratch, (size_t)got);
    else
        ftf_puts(out, "null");
    ftf_puts(out, ",\n");
}

void ftf_member_maps(void)
{
    ftf_puts(out, "\"maps\": ");
    if (ftf.map_count > 0)
        put_lines(ftf.maps_text, ftf.maps[ftf.map_count - 1].line + ftf.maps[ftf.map_count - 1].line_length);
    else
        ftf_puts(out, "null");
    ftf_puts(out, ",\n\"recorder\": ");
    if (ftf_ring_is_ours())
        ftf_put_json_string(out, ftf_ring.path, ftf_string_length(ftf_ring.path));
    else
        ftf_puts(out, "null");
    ftf_puts(out, ",\n");
}

void ftf_put_cause(struct ftf_text *text, const struct ftf_stage *stage)
{
    static const struct {
        int number;
        const char *name;
    } errors[] = {
        {ENOSPC, "ENOSPC"}, {EAGAIN, "EAGAIN"}, {EPERM, "EPERM"}, {EACCES, "EACCES"}, {ENOENT, "ENOENT"},
        {EMFILE, "EMFILE"}, {ENFILE, "ENFILE"}, {EROFS, "EROFS"}, {EFBIG, "EFBIG"},   {EIO, "EIO"},
        {ENOSYS, "ENOSYS"}, {ENOMEM, "ENOMEM"}, {EBADF, "EBADF"}, {EDQUOT, "EDQUOT"}, {EOVERFLOW, "line too long"}};
    if (stage->cause == FTF_OK && !stage->text) {
        ftf_puts(text, "null");
        return;
    }
    ftf_puts(text, "\"");
    if (stage->text) {
        ftf_puts(text, stage->text);
        if (stage->count >= 0) {
            ftf_puts(text, ": ");
            ftf_put_decimal(text, stage->count);
        }
    } else if (stage->cause == FTF_CUT) {
        ftf_puts(text, "deadline");
    } else if (stage->cause == FTF_DIED) {
        ftf_puts(text, "killed");
    } else if (stage->cause == FTF_SKIPPED) {
        ftf_puts(text, "skipped");
    } else if (stage->cause > 0) {
        ftf_puts(text, "signal ");
        ftf_put_decimal(text, stage->cause);
    } else {
        const char *name = 0;
        for (size_t i = 0; i < FTF_LENGTH(errors); i++)
            if (errors[i].number == -stage->cause)
                name = errors[i].name;
        ftf_puts(text, name ? name : "errno ");
        if (!name)
            ftf_put_decimal(text, -stage->cause);
    }
    ftf_puts(text, "\"");
}

void ftf_member_stages(void)
{
    ftf_puts(out, "\"stages\": [");
    for (int i = 0; i < ftf.stage_count; i++) {
        const struct ftf_stage *stage = &ftf.stages[i];
        ftf_puts(out, i ? ", {\"name\": \"" : "{\"name\": \"");
        ftf_puts(out, stage->name);
        ftf_puts(out, "\", \"ok\": ");
        ftf_put_bool(out, stage->cause == FTF_OK);
        ftf_puts(out, ", \"ms\": ");
        ftf_put_milliseconds(out, stage->ns);
        ftf_puts(out, ", \"error\": ");
        ftf_put_cause(out, stage);
        ftf_puts(out, "}");
    }
    ftf_puts(out, "],\n");
}

void ftf_member_end(const char *how, uint64_t next)
{
    ftf_puts(out, "\"end\": {\"how\": \"");
    ftf_puts(out, how);
    ftf_puts(out, "\", \"next\": ");
    ftf_put_address(out, next);
    ftf_puts(out, ", \"total_ms\": ");
    ftf_put_milliseconds(out, ftf_clock_ns(CLOCK_MONOTONIC) - ftf.crash_ns);
    ftf_puts(out, "}}\n");
}

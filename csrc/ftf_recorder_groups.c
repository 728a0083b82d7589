/* CONTEXT: NORMAL. See ftf_recorder_parts.h. The limit that bites is often an ancestor's (a Slurm step in a limited job, a
   container in a limited pod), so every level up to the top of the mount is read. Version 1 counts OOM kills in
   memory.oom_control (since Linux 4.13), version 2 in memory.events, of this group and below, and memory.events.local. */
#include "ftf_recorder_parts.h"
#include "ftf_recorder_read.h"

#include <string.h>

#define V1_NO_LIMIT (UINT64_C(1) << 60) /* "none" is the largest multiple of the page size below 2^63 */
#define NONE (-1)
#define PATH 512

static struct {
    char mount[256];
    char root[256];
    int version; /* 0: no memory controller */
    uint32_t number; /* of this chain, from 1; 0: not read yet */
    int levels;
    char membership[PATH]; /* the path in /proc/self/cgroup that this chain was made from */
    struct {
        char directory[256 + PATH];
        char path[PATH];
        uint64_t usage, limit; /* as last read */
    } level[FTF_RING_GROUPS];
    int tight; /* the level with the least room, when it is not the own one; NONE */
    struct ftf_kept_file own_usage, tight_usage;
} chain = {.own_usage = FTF_KEPT_CLOSED, .tight_usage = FTF_KEPT_CLOSED, .tight = NONE};

static const char *usage_name(void) { return chain.version == 1 ? "memory.usage_in_bytes" : "memory.current"; }

/* Cut where it does not fit: such a path leads nowhere, and its figures are unknown. */
static void join(char *out, size_t size, const char *first, const char *second, const char *third)
{
    struct ftf_text text = {out, size - 1, 0, false};
    ftf_puts(&text, first);
    ftf_puts(&text, second);
    ftf_puts(&text, third);
    out[text.used] = 0;
}

static const char *file_of(int level, const char *name)
{
    static char path[256 + PATH + 64];
    join(path, sizeof path, chain.level[level].directory, "/", name);
    return path;
}

static const char *text_of(int level, const char *name) { return ftf_read_file(file_of(level, name)); }

static uint64_t figure(int level, const char *name)
{
    uint64_t value = ftf_number(text_of(level, name));
    return chain.version == 1 && value >= V1_NO_LIMIT && value < FTF_RING_UNLIMITED ? FTF_RING_UNLIMITED : value;
}

/* The path in the line of /proc/self/cgroup that names the memory controller: "4:memory:/job" or "0::/job". */
static bool find_path(const char *lines, char *path, size_t size)
{
    for (const char *line = lines; line && *line; line = strchr(line, '\n'), line += line != 0) {
        size_t length = strcspn(line, "\n");
        const char *controllers = memchr(line, ':', length);
        const char *where = controllers ? memchr(controllers + 1, ':', length - (size_t)(controllers + 1 - line)) : 0;
        if (!where)
            continue;
        bool found = chain.version == 2 && line[0] == '0' && where == controllers + 1;
        for (const char *word = controllers + 1; chain.version == 1 && !found && word < where;) {
            size_t letters = strcspn(word, ",:");
            found = letters == 6 && memcmp(word, "memory", 6) == 0;
            word += letters + 1;
        }
        size_t rest = length - (size_t)(where + 1 - line);
        if (found && rest < size) {
            memcpy(path, where + 1, rest);
            path[rest] = 0;
            return true;
        }
    }
    return false;
}

/* The part of the path below what is mounted; "" when it lies outside, as a host's path does in a container that shows its
   own group at the top of the mount. */
static const char *below_mount(const char *path)
{
    size_t length = strlen(chain.root);
    if (strstr(path, "/.."))
        return "";
    if (strcmp(chain.root, "/") == 0)
        return strcmp(path, "/") == 0 ? "" : path;
    if (strncmp(path, chain.root, length) == 0 && (path[length] == '/' || path[length] == 0))
        return path + length;
    return "";
}

static void cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = 0;
}

static void follow(const char *path)
{
    char rest[PATH], full[PATH];
    struct stat st;
    chain.number++;
    chain.levels = 0;
    chain.tight = NONE;
    join(rest, sizeof rest, below_mount(path), "", "");
    join(full, sizeof full, strcmp(path, "/") == 0 ? "" : path, "", "");
    char directory[sizeof chain.mount + PATH];
    join(directory, sizeof directory, chain.mount, rest, "");
    if (rest[0] && ftf_syscall4(SYS_newfstatat, AT_FDCWD, directory, &st, 0) != 0)
        rest[0] = 0; /* mounted otherwise than we think: the top is our own group */
    while (chain.levels < FTF_RING_GROUPS) {
        int level = chain.levels++;
        join(chain.level[level].directory, sizeof chain.level[level].directory, chain.mount, rest, "");
        join(chain.level[level].path, sizeof chain.level[level].path, full[0] ? full : "/", "", "");
        chain.level[level].usage = chain.level[level].limit = FTF_RING_UNKNOWN;
        if (rest[0] == 0)
            break;
        cut_last(rest);
        cut_last(full);
    }
    ftf_kept_close(&chain.tight_usage);
    ftf_kept_open(&chain.own_usage, file_of(0, usage_name()));
}

bool ftf_groups_follow(void)
{
    static char path[sizeof chain.membership];
    if (!chain.version || !find_path(ftf_read_file("/proc/self/cgroup"), path, sizeof path))
        return false;
    if (chain.number && strcmp(path, chain.membership) == 0)
        return false;
    strcpy(chain.membership, path);
    follow(path);
    return true;
}

void ftf_groups_open(const struct ftf_recorder_config *config)
{
    chain.version = config->group_mount && config->group_mount[0] ? config->group_version : 0;
    join(chain.mount, sizeof chain.mount, config->group_mount ? config->group_mount : "", "", "");
    join(chain.root, sizeof chain.root, config->group_root ? config->group_root : "/", "", "");
    chain.membership[0] = 0;
    chain.number = 0;
    ftf_groups_follow();
}

void ftf_groups_close(void)
{
    ftf_kept_close(&chain.own_usage);
    ftf_kept_close(&chain.tight_usage);
    chain.number = 0;
    chain.levels = 0;
}

size_t ftf_groups_text(char *bytes, size_t size)
{
    struct ftf_text text = {bytes, size, 0, false};
    ftf_puts(&text, "chain=");
    ftf_put_decimal(&text, chain.number);
    ftf_put(&text, "", 1);
    for (int level = 0; level < chain.levels; level++) {
        ftf_puts(&text, "group=");
        ftf_put_decimal(&text, chain.version);
        ftf_puts(&text, ":");
        ftf_put(&text, chain.level[level].path, strlen(chain.level[level].path) + 1);
    }
    return text.overflow ? 0 : text.used;
}

uint64_t ftf_groups_usage(void)
{
    if (chain.tight != NONE) {
        uint64_t usage = ftf_number(ftf_read_kept(&chain.tight_usage));
        if (usage != FTF_RING_UNKNOWN)
            chain.level[chain.tight].usage = usage;
    }
    return chain.levels ? ftf_number(ftf_read_kept(&chain.own_usage)) : FTF_RING_UNKNOWN;
}

static bool limited(int level) { return chain.level[level].limit < FTF_RING_UNLIMITED && chain.level[level].limit > 0; }

bool ftf_groups_pressed(uint64_t own)
{
    for (int level = 0; level < chain.levels; level++) {
        uint64_t usage = level == 0 ? own : chain.level[level].usage;
        if (limited(level) && usage < FTF_RING_UNLIMITED && usage / 4 >= chain.level[level].limit / 5)
            return true;
    }
    return false;
}

uint64_t ftf_groups_limit(void)
{
    uint64_t smallest = FTF_RING_UNLIMITED;
    for (int level = 0; level < chain.levels; level++)
        if (limited(level) && chain.level[level].limit < smallest)
            smallest = chain.level[level].limit;
    return smallest;
}

static void read_version_1(int level, struct ftf_ring_group *group, bool statistics)
{
    group->limit = figure(level, "memory.limit_in_bytes");
    group->peak = figure(level, "memory.max_usage_in_bytes");
    group->failcnt = figure(level, "memory.failcnt");
    group->oom_kill = ftf_number_of(text_of(level, "memory.oom_control"), "oom_kill");
    if (!statistics)
        return;
    const char *text = text_of(level, "memory.stat");
    group->anon = ftf_number_of(text, "total_rss");
    group->shmem = ftf_number_of(text, "total_shmem");
    group->swap = ftf_number_of(text, "total_swap");
    uint64_t cache = ftf_number_of(text, "total_cache");
    group->file = cache < FTF_RING_UNLIMITED && group->shmem <= cache ? cache - group->shmem : cache;
}

static void read_version_2(int level, struct ftf_ring_group *group, bool statistics)
{
    group->limit = figure(level, "memory.max");
    group->high = figure(level, "memory.high");
    group->peak = figure(level, "memory.peak");
    group->swap = figure(level, "memory.swap.current");
    const char *text = text_of(level, "memory.events");
    group->max_events = ftf_number_of(text, "max");
    group->oom = ftf_number_of(text, "oom");
    group->oom_kill = ftf_number_of(text, "oom_kill");
    group->oom_group_kill = ftf_number_of(text, "oom_group_kill");
    text = text_of(level, "memory.events.local");
    group->local_oom = ftf_number_of(text, "oom");
    group->local_oom_kill = ftf_number_of(text, "oom_kill");
    if (!statistics)
        return;
    text = text_of(level, "memory.stat");
    group->anon = ftf_number_of(text, "anon");
    group->shmem = ftf_number_of(text, "shmem");
    uint64_t file = ftf_number_of(text, "file"); /* shmem is in it */
    group->file = file < FTF_RING_UNLIMITED && group->shmem <= file ? file - group->shmem : file;
}

static void find_tight(void)
{
    int tight = NONE;
    uint64_t least = UINT64_MAX;
    for (int level = 0; level < chain.levels; level++) {
        uint64_t usage = chain.level[level].usage, limit = chain.level[level].limit;
        if (!limited(level) || usage >= FTF_RING_UNLIMITED)
            continue;
        uint64_t room = usage < limit ? limit - usage : 0;
        if (room < least) {
            least = room;
            tight = level;
        }
    }
    tight = tight == 0 ? NONE : tight; /* the own group's usage is read anyway */
    if (tight != chain.tight)
        ftf_kept_open(&chain.tight_usage, tight == NONE ? 0 : file_of(tight, usage_name()));
    chain.tight = tight;
}

void ftf_groups_slow(struct ftf_ring_slow *slow, bool statistics)
{
    slow->chain = chain.number;
    slow->groups = (uint32_t)chain.levels;
    for (int level = 0; level < chain.levels; level++) {
        struct ftf_ring_group *group = &slow->group[level];
        struct stat st;
        memset(group, 0xff, sizeof *group);
        group->usage = figure(level, usage_name());
        if (chain.version == 1)
            read_version_1(level, group, statistics && level == 0);
        else
            read_version_2(level, group, statistics && level == 0);
        if (ftf_syscall4(SYS_newfstatat, AT_FDCWD, chain.level[level].directory, &st, 0) == 0)
            group->inode = st.st_ino;
        chain.level[level].usage = group->usage;
        chain.level[level].limit = group->limit;
    }
    find_tight();
}

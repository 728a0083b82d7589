/* CONTEXT: NORMAL. See ftf_recorder_parts.h. A child belongs to the thread that forked it, so the list is spread over
   /proc/self/task/TID/children (CONFIG_PROC_CHILDREN). The main thread's is read every time, those of up to LOOK others in
   turn: DataLoader workers are the main thread's, and a process with a thousand threads must not pay for a thousand reads.
   Where the kernel has no such files, all of /proc is looked through, bounded and seldom. */
#include "ftf_recorder_parts.h"
#include "ftf_recorder_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 512
#define LOOK 32
#define MOST_PROCESSES 4096
#define SCAN_EVERY 10

static int known[MOST];
static int known_count;
static int threads[1024];
static int turn;

void ftf_children_forget(void) { known_count = turn = 0; }

static void add(int pid)
{
    for (int i = 0; i < known_count; i++)
        if (known[i] == pid)
            return;
    if (pid > 0 && known_count < MOST)
        known[known_count++] = pid;
}

static bool add_children_of(int tid)
{
    static char list[8192];
    long got = ftf_read_task_file(tid, "children", list, sizeof list - 1);
    if (got < 0)
        return got != -ENOENT;
    list[got] = 0;
    for (char *at = list, *next; (next = strchr(at, ' ')); at = next + 1)
        add(atoi(at));
    return true;
}

/* A process's stat from field 3 on, its state; NULL when it is gone. Field 2, the name, may hold anything. */
static const char *fields_of(int pid)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const char *text = ftf_read_file(path);
    text = text ? strrchr(text, ')') : 0;
    return text && text[1] == ' ' && text[2] ? text + 2 : 0;
}

/* Field 4: is the parent this process? */
static bool is_ours(const char *fields) { return atoi(fields + 2) == ftf.pid; }

static void scan_everything(void)
{
    static int pids[MOST_PROCESSES];
    int count = ftf_numbers_in("/proc", pids, MOST_PROCESSES);
    for (int i = 0; i < count; i++) {
        const char *fields = fields_of(pids[i]);
        if (fields && is_ours(fields))
            add(pids[i]);
    }
}

static void find(void)
{
    if (!add_children_of(ftf.pid)) {
        if (turn++ % SCAN_EVERY == 0)
            scan_everything();
        return;
    }
    int count = ftf_numbers_in("/proc/self/task", threads, (int)FTF_LENGTH(threads));
    int looks = count < LOOK ? count : LOOK;
    for (int i = 0; i < looks; i++, turn++)
        if (threads[turn % count] != ftf.pid)
            add_children_of(threads[turn % count]);
    if (turn > 1 << 30)
        turn = 0;
}

/* Resident bytes of a child, or FTF_RING_UNKNOWN when it is gone, somebody else's by now, or a zombie. */
static uint64_t resident(int pid)
{
    const char *field = fields_of(pid);
    if (!field || field[0] == 'Z' || field[0] == 'X' || !is_ours(field))
        return FTF_RING_UNKNOWN;
    for (int number = 3; field && number < 24; number++) {
        field = strchr(field, ' ');
        field += field != 0;
    }
    static uint64_t page;
    if (!page)
        page = (uint64_t)sysconf(_SC_PAGESIZE);
    return field ? strtoull(field, 0, 10) * page : FTF_RING_UNKNOWN;
}

/* Keeps the largest, largest first. */
static void place(struct ftf_ring_slow *slow, int pid, uint64_t rss)
{
    int at = (int)slow->children;
    if (at == FTF_RING_CHILDREN && slow->child[--at].rss >= rss)
        return;
    for (; at > 0 && slow->child[at - 1].rss < rss; at--)
        if (at < FTF_RING_CHILDREN)
            slow->child[at] = slow->child[at - 1];
    slow->child[at] = (struct ftf_ring_child){.pid = pid, .rss = rss};
    if (slow->children < FTF_RING_CHILDREN)
        slow->children++;
}

void ftf_children_slow(struct ftf_ring_slow *slow)
{
    int kept = 0;
    find();
    slow->children_rss = 0;
    for (int i = 0; i < known_count; i++) {
        uint64_t rss = resident(known[i]);
        if (rss == FTF_RING_UNKNOWN)
            continue;
        known[kept++] = known[i];
        slow->children_rss += rss;
        place(slow, known[i], rss);
    }
    known_count = kept;
    slow->children_count = (uint64_t)kept;
    for (uint32_t i = 0; i < slow->children; i++) {
        char path[32];
        snprintf(path, sizeof path, "/proc/%d/comm", slow->child[i].pid);
        const char *name = ftf_read_file(path);
        size_t length = name ? strlen(name) - 1 : 0;
        memcpy(slow->child[i].name, name ? name : "", length < 15 ? length : 15);
    }
}

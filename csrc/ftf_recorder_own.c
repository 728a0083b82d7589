/* CONTEXT: NORMAL. See ftf_recorder_parts.h. RssAnon, RssFile and RssShmem stand in /proc/self/status only: measured 3.1
   microseconds a read (kernel 6.18), against 0.4 for statm, which cannot tell file from shmem, and 9 for smaps_rollup,
   which takes the lock of the address space. */
#include "ftf_recorder_parts.h"
#include "ftf_recorder_read.h"
#include "ftf_ring_write.h"

#include <string.h>
#include <sys/resource.h>

#define MOST_THREADS 1024
#define MOST_NAMES 250

static struct ftf_kept_file status = FTF_KEPT_CLOSED;
static int threads[MOST_THREADS];

void ftf_own_open(void) { ftf_kept_open(&status, "/proc/self/status"); }
void ftf_own_close(void) { ftf_kept_close(&status); }

void ftf_own_fast(struct ftf_ring_fast *fast)
{
    const char *text = ftf_read_kept(&status);
    fast->rss_anon = ftf_kb(ftf_number_of(text, "RssAnon:"));
    fast->rss_file = ftf_kb(ftf_number_of(text, "RssFile:"));
    fast->rss_shmem = ftf_kb(ftf_number_of(text, "RssShmem:"));
}

void ftf_own_slow(struct ftf_ring_slow *slow)
{
    const char *text = ftf_read_kept(&status);
    slow->vm_size = ftf_kb(ftf_number_of(text, "VmSize:"));
    slow->swap = ftf_kb(ftf_number_of(text, "VmSwap:"));
    slow->threads = ftf_number_of(text, "Threads:");
    uint64_t parent = ftf_number_of(text, "PPid:");
    slow->ppid = parent < INT32_MAX ? (int32_t)parent : 0;
    text = ftf_read_file("/proc/self/oom_score_adj");
    bool negative = text && text[0] == '-';
    uint64_t score = ftf_number(text + negative * (text != 0));
    slow->oom_score_adj = !text || score > 1000 ? INT64_MAX : negative ? -(int64_t)score : (int64_t)score;
    slow->cpu_ns = (uint64_t)ftf_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static void put_entry(struct ftf_text *text, const char *key, const char *value, size_t length)
{
    size_t before = text->used;
    ftf_puts(text, key);
    ftf_puts(text, "=");
    ftf_put(text, value, length);
    ftf_put(text, "", 1);
    if (text->overflow) { /* whole entries or none */
        text->used = before;
        text->overflow = false;
    }
}

static void put_lines(struct ftf_text *text, const char *key, const char *lines)
{
    while (lines && *lines) {
        size_t length = strcspn(lines, "\n");
        if (length)
            put_entry(text, key, lines, length);
        lines += length + (lines[length] == '\n');
    }
}

size_t ftf_own_text(char *bytes, size_t size)
{
    struct ftf_text text = {bytes, size, 0, false};
    const char *name = ftf_read_file("/proc/self/comm");
    if (name) /* a name may hold a line feed: only the last one is the kernel's own */
        put_entry(&text, "comm", name, strlen(name) - 1);
    const char *spaces = ftf_read_file("/proc/self/status");
    spaces = spaces ? strstr(spaces, "\nNSpid:") : 0;
    if (spaces) {
        char list[256];
        size_t used = 0;
        for (spaces += 7; *spaces && *spaces != '\n' && used < sizeof list; spaces++)
            if (*spaces != '\t' || used > 0)
                list[used++] = *spaces == '\t' ? ' ' : *spaces;
        put_entry(&text, "nspid", list, used);
    }
    put_lines(&text, "uid_map", ftf_read_file("/proc/self/uid_map"));
    put_lines(&text, "cgroup", ftf_read_file("/proc/self/cgroup"));
    return text.used;
}

void ftf_own_thread_names(void)
{
    static char bytes[4000];
    static char name[40];
    struct ftf_text text = {bytes, sizeof bytes, 0, false};
    int count = ftf_numbers_in("/proc/self/task", threads, MOST_THREADS), told = 0;
    for (int i = 0; i < count && told < MOST_NAMES; i++) {
        if (threads[i] == ftf.watcher_tid)
            continue;
        long got = ftf_read_task_file(threads[i], "comm", name, sizeof name - 1);
        if (got < 2)
            continue;
        char entry[48];
        struct ftf_text made = {entry, sizeof entry, 0, false};
        put_entry(&made, "name", name, (size_t)got - 1);
        if (memmem(bytes, text.used, entry, made.used)) /* a thousand threads have few names */
            continue;
        put_entry(&text, "name", name, (size_t)got - 1);
        told++;
    }
    if (text.used > 0)
        ftf_ring_put_text(FTF_RING_THREADS, ftf_clock_ns(CLOCK_MONOTONIC), bytes, text.used);
}

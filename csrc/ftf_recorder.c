/* CONTEXT: NORMAL. See ftf_recorder.h.

   Two tiers. Fast, ten times a second: own memory, the own group's usage, what the machine has left. Fifty times a second
   in a phase() and while a limit is more than four fifths used, as far as that costs at most FASTER_BUDGET of a core. Slow,
   once a second and at a jump of the usage: counters, limits, children, everything else; what is the same for the whole
   machine is read by one process of it. Forked workers keep to the plain pace and leave the machine to their rank.

   A forked child makes its ring a tenth of a second after the fork, so that one that only runs to its exec(3) leaves no
   file behind: nobody would tell us that it became another program. */
#include "ftf_recorder.h"

#include "ftf_ending.h"
#include "ftf_keep.h"
#include "ftf_recorder_file.h"
#include "ftf_recorder_parts.h"
#include "ftf_watcher.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define SECOND_NS INT64_C(1000000000)
#define PERIOD_NS (SECOND_NS / 10)
#define FASTER_NS (SECOND_NS / 50)
#define FASTER_BUDGET 200 /* a two-hundredth of a core */
#define SLOW_NS SECOND_NS
#define JUMP_PAUSE_NS (SECOND_NS / 5)
#define JUMP_LEAST (UINT64_C(8) << 20)
#define JUMP_MOST (UINT64_C(256) << 20)
#define NAMES_NS (10 * SECOND_NS)
#define MOST_FOLDERS 8

static struct {
    bool configured;
    char tool[24];
    char *text;
    size_t text_size;
    char local_directory[512];
    char *removable[MOST_FOLDERS + 1];
    int owner; /* pid of the process that made those folders */
    int64_t rank, local_rank, world_size;
} configuration;

static struct {
    bool opened; /* the files that are kept open */
    int64_t born_ns; /* first tick */
    int64_t fast_ns, slow_ns, names_ns; /* when last done */
    uint64_t usage_told; /* in the last slow sample */
    bool jumped; /* since then */
    bool pressed;
    int64_t cpu_ns; /* of this thread, at the last slow sample */
    int turns; /* fast samples since */
    int64_t cost_ns; /* of one */
    int64_t period_ns;
} watch;

static bool gone; /* said goodbye */
static uint32_t busy; /* makes, moves and removals of the file */
static char refusal[160];

static bool try_lock(void) { return __atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) == 0; }

/* The watcher holds it while it waits for a disk, which may be for ever. */
static void lock(void)
{
    for (int64_t until = ftf_clock_ns(CLOCK_MONOTONIC) + SECOND_NS;
         !try_lock() && ftf_clock_ns(CLOCK_MONOTONIC) < until;)
        sched_yield();
}

static void unlock(void) { __atomic_store_n(&busy, 0, __ATOMIC_RELEASE); }

static bool is_worker(void) { return ftf.fork_of != 0 || ftf.worker_of != 0; }

int ftf_recorder_configure(const struct ftf_recorder_config *config)
{
    snprintf(configuration.tool, sizeof configuration.tool, "%s", config->tool);
    snprintf(configuration.local_directory, sizeof configuration.local_directory, "%s", config->local_directory);
    if (!configuration.text || configuration.text_size != config->text_size ||
        memcmp(configuration.text, config->text, config->text_size) != 0) {
        char *text = ftf_keep(config->text, config->text_size);
        if (!text)
            return -ENOMEM;
        configuration.text = text;
        configuration.text_size = config->text_size;
    }
    int count = 0;
    for (; config->removable && config->removable[count] && count < MOST_FOLDERS; count++) {
        char *known = configuration.removable[count];
        if (known && strcmp(known, config->removable[count]) == 0)
            continue;
        configuration.removable[count] = ftf_keep(config->removable[count], strlen(config->removable[count]));
        if (!configuration.removable[count])
            return -ENOMEM;
    }
    configuration.removable[count] = 0;
    configuration.owner = ftf.pid;
    configuration.rank = config->rank;
    configuration.local_rank = config->local_rank;
    configuration.world_size = config->world_size;
    ftf.worker_of = config->worker_of;
    if (!watch.opened)
        ftf_groups_open(config);
    ftf_gpu_find(config->gpu);
    int result = ftf_ending_watch();
    if (result != 0)
        return result;
    configuration.configured = true;
    return 0;
}

static uint64_t inode_of(const char *path)
{
    struct stat st;
    return ftf_syscall4(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 ? (uint64_t)st.st_ino : 0;
}

static uint64_t seconds_limit(rlim_t limit) { return limit == RLIM_INFINITY ? FTF_RING_UNLIMITED : (uint64_t)limit; }

static void read_cpu_limit(uint64_t limits[2])
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_CPU, &limit);
    limits[0] = seconds_limit(limit.rlim_cur);
    limits[1] = seconds_limit(limit.rlim_max);
}

static void fill_header(struct ftf_ring_header *header)
{
    uint64_t limits[2];
    read_cpu_limit(limits);
    strcpy(header->tool, configuration.tool);
    header->pid = ftf.pid;
    header->ppid = getppid();
    header->start_ticks = ftf.start_ticks;
    header->fork_of = ftf.fork_of;
    header->worker_of = ftf.worker_of;
    header->uid = getuid();
    header->rank = configuration.rank;
    header->local_rank = configuration.local_rank;
    header->world_size = configuration.world_size;
    header->pid_namespace = inode_of("/proc/self/ns/pid");
    header->cgroup_namespace = inode_of("/proc/self/ns/cgroup");
    header->cpu_limit_soft = limits[0];
    header->cpu_limit_hard = limits[1];
    memcpy(header->boot_id, ftf.boot_id, sizeof header->boot_id);
    header->installed_ns = ftf.installed_ns;
    header->clocks.realtime = ftf_clock_ns(CLOCK_REALTIME);
    header->clocks.monotonic = ftf_clock_ns(CLOCK_MONOTONIC);
    header->clocks.boottime = ftf_clock_ns(CLOCK_BOOTTIME);
    header->period_us = PERIOD_NS / 1000;
}

static void tell_process(void)
{
    static char text[8 * 1024 - 64];
    size_t used = ftf_own_text(text, sizeof text / 2);
    used += ftf_groups_text(text + used, sizeof text - used);
    ftf_ring_put_text(FTF_RING_PROCESS, ftf_clock_ns(CLOCK_MONOTONIC), text, used);
}

static void open_files(void)
{
    if (watch.opened)
        return;
    watch.opened = true;
    ftf_own_open();
    ftf_groups_follow();
    if (!is_worker())
        ftf_node_open();
}

static void make(void)
{
    struct ftf_ring_plan plan = {.fast = 4096, .slow = 192, .signals = 64, .marks = 256};
    const char *failed = "";
    if (is_worker())
        plan = (struct ftf_ring_plan){.fast = 1024, .slow = 64, .signals = 32, .marks = 32};
    open_files();
    fill_header(&plan.header);
    int result = ftf_ring_file_make(&plan, configuration.local_directory, &failed);
    if (result != 0) {
        snprintf(refusal, sizeof refusal, "%s: %s", failed, strerror(-result));
        return;
    }
    refusal[0] = 0;
    if (ftf_ring_file_made_folder()) /* the one who made it first is gone, as a daemon's parents are */
        configuration.owner = ftf.pid;
    ftf_ring_put_text(FTF_RING_JOB, ftf_clock_ns(CLOCK_MONOTONIC), configuration.text, configuration.text_size);
    tell_process();
    ftf_recorder_marks_again();
    ftf_ring_save();
}

void ftf_recorder_start(void)
{
    const char *failed = "";
    lock();
    gone = false;
    if (!configuration.configured || ftf.fork_of != 0)
        ; /* a forked child's watcher makes it */
    else if (!ftf_ring.base)
        make();
    else if (!ftf_ring_file_is_in_place()) {
        int result = ftf_ring_file_move(configuration.local_directory, &failed);
        if (result != 0)
            snprintf(refusal, sizeof refusal, "%s: %s", failed, strerror(-result));
        ftf_ring_save();
    }
    unlock();
}

const char *ftf_recorder_refusal(void) { return refusal; }

static void remove_folders(void)
{
    if (configuration.owner != getpid())
        return;
    for (int i = 0; configuration.removable[i]; i++)
        if (ftf_syscall3(SYS_unlinkat, AT_FDCWD, configuration.removable[i], AT_REMOVEDIR) != 0)
            return;
}

/* The ring of a process that ended by itself says with which status and when, and what was before. Most of those that do
   are no part of the trouble (`grep` exits with 1 all day), so what was never used of it is given back. */
static void leave_ring(int how, uint32_t code)
{
    if (code != 0)
        ftf_ring_store(offsetof(struct ftf_ring_header, end_code), &code, sizeof code);
    ftf_ring_end(how);
    ftf_ring_save();
    if (code != 0)
        ftf_ring_file_shrink();
    else
        ftf_ring_file_remove();
}

void ftf_recorder_leave(int how, int status)
{
    if (how != FTF_RING_UNINSTALL && status <= 0)
        ftf_ending_success();
    if (!configuration.configured || ftf.pid != getpid())
        return;
    lock();
    gone = true;
    if (ftf_ring.base)
        leave_ring(how, status > 0 ? (uint32_t)status : 0);
    remove_folders();
    unlock();
}

void ftf_recorder_come_back(void)
{
    const char *failed;
    lock();
    if (gone && ftf_ring_is_ours()) {
        uint32_t none = 0;
        ftf_ring_store(offsetof(struct ftf_ring_header, end_code), &none, sizeof none);
        ftf_ring_end(FTF_RING_RUNNING);
        ftf_ring_file_move(configuration.local_directory, &failed);
        ftf_ring_save();
    }
    gone = false;
    unlock();
}

static void close_files(void)
{
    ftf_own_close();
    ftf_groups_close();
    ftf_node_close();
    watch.opened = false;
}

void ftf_recorder_close(void)
{
    ftf_recorder_leave(FTF_RING_UNINSTALL, 0);
    close_files();
    ftf_ring_file_forget();
    memset(&watch, 0, sizeof watch);
    configuration.configured = false;
    refusal[0] = 0;
}

void ftf_recorder_forget(int parent)
{
    if (ftf.worker_of == 0)
        ftf.worker_of = parent;
    busy = 0;
    gone = false;
    close_files();
    ftf_ring_file_forget();
    memset(&watch, 0, sizeof watch);
    ftf_children_forget();
    ftf_recorder_marks_forget();
}

void ftf_recorder_survived(void) { ftf_ring_end(FTF_RING_RUNNING); }

/* The end of main(), or of exit(3) called by whomever, after what others registered. */
__attribute__((destructor)) static void leave_at_exit(void) { ftf_recorder_leave(FTF_RING_EXIT, ftf_ending_status()); }

static bool pressed(const struct ftf_ring_fast *sample)
{
    return ftf_groups_pressed(sample->usage) || ftf_node_pressed(sample->available);
}

static void take_fast(int64_t now)
{
    struct ftf_ring_fast sample = {.at = now, .usage = FTF_RING_UNKNOWN, .available = FTF_RING_UNKNOWN};
    ftf_own_fast(&sample);
    sample.usage = ftf_groups_usage();
    if (!is_worker())
        sample.available = ftf_node_available();
    ftf_ring_put(FTF_RING_FAST, &sample);
    watch.pressed = pressed(&sample);
    watch.turns++;
    /* A jump: much was taken, or given back, as it is when a neighbour in the group has been killed. */
    uint64_t change =
        sample.usage > watch.usage_told ? sample.usage - watch.usage_told : watch.usage_told - sample.usage;
    uint64_t much = ftf_groups_limit() / 64;
    much = much < JUMP_LEAST ? JUMP_LEAST : much > JUMP_MOST ? JUMP_MOST : much;
    watch.jumped |= sample.usage < FTF_RING_UNLIMITED && change >= much;
}

static void weigh(void)
{
    int64_t cpu = ftf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (watch.cpu_ns && watch.turns > 0)
        watch.cost_ns = (cpu - watch.cpu_ns) / watch.turns;
    watch.cpu_ns = cpu;
    watch.turns = 0;
}

static void refresh_cpu_limit(void)
{
    static uint64_t told[2];
    uint64_t limits[2];
    read_cpu_limit(limits);
    if (memcmp(told, limits, sizeof told) != 0)
        ftf_ring_store(offsetof(struct ftf_ring_header, cpu_limit_soft), limits, sizeof limits);
    memcpy(told, limits, sizeof told);
}

static void take_slow(int64_t now)
{
    static struct ftf_ring_slow sample;
    memset(&sample, 0xff, offsetof(struct ftf_ring_slow, ppid));
    memset((uint8_t *)&sample + offsetof(struct ftf_ring_slow, ppid), 0,
           sizeof sample - offsetof(struct ftf_ring_slow, ppid));
    if (ftf_groups_follow())
        tell_process();
    ftf_own_slow(&sample);
    ftf_groups_slow(&sample, !is_worker());
    if (!is_worker()) {
        ftf_node_slow(&sample, configuration.local_rank <= 0);
        ftf_children_slow(&sample);
        ftf_gpu_slow(&sample);
    }
    sample.realtime = ftf_clock_ns(CLOCK_REALTIME);
    sample.at = ftf_clock_ns(CLOCK_MONOTONIC);
    sample.boottime = ftf_clock_ns(CLOCK_BOOTTIME);
    watch.usage_told = sample.groups ? sample.group[0].usage : 0;
    watch.slow_ns = now;
    watch.jumped = false;
    ftf_ring_put(FTF_RING_SLOW, &sample);
    refresh_cpu_limit();
    weigh();
    if (watch.names_ns == 0 || now - watch.names_ns >= NAMES_NS) {
        watch.names_ns = now;
        ftf_own_thread_names();
    }
}

static int64_t wanted_period(void)
{
    if (is_worker() || !(watch.pressed || ftf.phase_depth > 0))
        return PERIOD_NS;
    int64_t affordable = watch.cost_ns * FASTER_BUDGET;
    return affordable < FASTER_NS ? FASTER_NS : affordable > PERIOD_NS ? PERIOD_NS : affordable;
}

static void keep_pace(void)
{
    int64_t period = wanted_period();
    if (period == watch.period_ns)
        return;
    uint32_t microseconds = (uint32_t)(period / 1000);
    watch.period_ns = period;
    ftf_ring_store(offsetof(struct ftf_ring_header, period_us), &microseconds, sizeof microseconds);
}

/* Is there a ring to write into? Makes a forked child's when its time has come. */
static bool ready(int64_t now)
{
    if (!configuration.configured || gone)
        return false;
    if (!ftf_ring.base && ftf.fork_of != 0 && now - watch.born_ns >= PERIOD_NS && !refusal[0]) {
        lock();
        if (!gone)
            make();
        unlock();
    }
    return ftf_ring.base != 0;
}

int64_t ftf_recorder_tick(int64_t now)
{
    if (!watch.born_ns)
        watch.born_ns = now;
    if (!ready(now))
        return now + PERIOD_NS;
    keep_pace();
    int64_t due = watch.fast_ns + watch.period_ns;
    if (now >= due) {
        take_fast(now);
        watch.fast_ns = now - due > watch.period_ns ? now : due; /* in step, unless we were held up */
    }
    if (now - watch.slow_ns >= (watch.jumped ? JUMP_PAUSE_NS : SLOW_NS))
        take_slow(now);
    keep_pace();
    if (try_lock()) { /* else somebody moves or removes the file just now */
        if (ftf_ring.lost)
            ftf_ring_file_mend();
        ftf_ring_save();
        unlock();
    }
    return watch.fast_ns + watch.period_ns;
}

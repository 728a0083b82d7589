/* CONTEXT: NORMAL. See ftf_inventory.h. Only in the process that called install(): forked workers share its answer. */
#include "ftf_inventory.h"

#include "ftf_altstack.h"
#include "ftf_keep.h"
#include "ftf_spawn.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_NS INT64_C(2000000000)    /* after install: a short script never pays for it */
#define LOOK_NS INT64_C(10000000000)    /* between looks at the mappings */
#define AGAIN_NS INT64_C(30000000000)   /* between two runs */
#define LIFE_SECONDS 20
#define LARGEST (4 << 20)

static struct ftf_stack stack;
static int output = -1;
static long child;
static int64_t started_ns, looked_ns;
static uint64_t counted, described;

static uint64_t count_executable_mappings(void)
{
    static char text[65536];
    uint64_t count = 0;
    long got;
    int fd = (int)ftf_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    while ((got = ftf_read(fd, text, sizeof text)) > 0)
        for (long i = 0; i + 4 < got; i++) /* a pair cut by the buffer's end is missed: then it is looked at again */
            count += text[i] == ' ' && text[i + 3] == 'x' && text[i + 4] == 'p';
    ftf_close(fd);
    return count;
}

static void start(void)
{
    char pid[24];
    int count = 0;
    if (!stack.base)
        stack = ftf_stack_map(64 * 1024);
    output = memfd_create("ftforensics-inventory", MFD_CLOEXEC);
    if (!stack.base || output < 0)
        return;
    while (ftf.inventory_argv[count])
        count++;
    snprintf(pid, sizeof pid, "%d", ftf.pid);
    ftf.inventory_argv[count] = pid;
    ftf.inventory_argv[count + 1] = 0;
    child = ftf_spawn_detached(ftf.inventory_argv, ftf.helper_env, output, LIFE_SECONDS, stack);
    ftf.inventory_argv[count] = 0;
    described = counted;
    if (child < 0) {
        child = 0;
        close(output);
        output = -1;
    }
}

/* Whole record lines from our own program, or nothing. */
static bool acceptable(const char *lines, size_t size)
{
    if (size < 3 || lines[0] != '"' || lines[size - 1] != '\n' || lines[size - 2] != ',')
        return false;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)lines[i] < 0x20 && lines[i] != '\n')
            return false;
    return true;
}

static void fetch(void)
{
    off_t size = lseek(output, 0, SEEK_END);
    void *lines = size > 0 && size <= LARGEST ? mmap(0, (size_t)size, PROT_READ, MAP_PRIVATE, output, 0) : MAP_FAILED;
    if (lines != MAP_FAILED) {
        char *kept = acceptable(lines, (size_t)size) ? ftf_keep(lines, (size_t)size) : 0;
        if (kept) { /* the old text is given up: some kilobytes, at most once in AGAIN_NS */
            __atomic_store_n(&ftf.inventory, 0, __ATOMIC_RELEASE);
            ftf.inventory_size = (size_t)size;
            __atomic_store_n(&ftf.inventory, kept, __ATOMIC_RELEASE);
        }
        munmap(lines, (size_t)size);
    }
    close(output);
    output = -1;
}

void ftf_inventory_tick(void)
{
    int64_t now = ftf_clock_ns(CLOCK_MONOTONIC);
    if (!ftf.inventory_argv[0] || ftf.fork_of)
        return;
    if (child > 0) {
        if (ftf_spawn_ended((int)child) || now - started_ns > (LIFE_SECONDS + 2) * INT64_C(1000000000)) {
            child = 0;
            fetch();
        }
        return;
    }
    if (now - ftf.installed_ns < FIRST_NS || now - looked_ns < (looked_ns ? LOOK_NS : 0))
        return;
    looked_ns = now;
    counted = count_executable_mappings();
    if (counted != described && (started_ns == 0 || now - started_ns > AGAIN_NS)) {
        started_ns = now;
        start();
    }
}

bool ftf_inventory_started(void) { return started_ns != 0; }

void ftf_inventory_forget(void)
{
    child = 0;
    if (output >= 0)
        close(output);
    output = -1;
}

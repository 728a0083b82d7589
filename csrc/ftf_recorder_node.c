/* CONTEXT: NORMAL. See ftf_recorder_parts.h. /proc/vmstat adds up counters of every CPU, so one process a node reads it. */
#include "ftf_recorder_parts.h"
#include "ftf_recorder_read.h"

#include <string.h>
#include <sys/vfs.h>

static struct ftf_kept_file meminfo = FTF_KEPT_CLOSED;
static uint64_t total = FTF_RING_UNKNOWN;

void ftf_node_open(void) { ftf_kept_open(&meminfo, "/proc/meminfo"); }
void ftf_node_close(void) { ftf_kept_close(&meminfo); }

uint64_t ftf_node_available(void) { return ftf_kb(ftf_number_of(ftf_read_kept(&meminfo), "MemAvailable:")); }

bool ftf_node_pressed(uint64_t available)
{
    return total < FTF_RING_UNLIMITED && available < FTF_RING_UNLIMITED && available < total / 5;
}

/* "some avg10=1.23 avg60=..." in hundredths of a percent. */
static uint64_t pressure(const char *text, const char *line)
{
    const char *at = text ? strstr(text, line) : 0;
    at = at ? strstr(at, "avg10=") : 0;
    if (!at)
        return FTF_RING_UNKNOWN;
    at += 6;
    uint64_t value = 0;
    int decimals = -1;
    for (; (*at >= '0' && *at <= '9') || (*at == '.' && decimals < 0); at++) {
        if (*at == '.')
            decimals = 0;
        else if (decimals < 2) {
            value = value * 10 + (uint64_t)(*at - '0');
            decimals += decimals >= 0;
        }
    }
    for (decimals = decimals < 0 ? 0 : decimals; decimals < 2; decimals++)
        value *= 10;
    return value;
}

void ftf_node_slow(struct ftf_ring_slow *slow, bool leader)
{
    const char *text = ftf_read_kept(&meminfo);
    total = slow->mem_total = ftf_kb(ftf_number_of(text, "MemTotal:"));
    slow->mem_available = ftf_kb(ftf_number_of(text, "MemAvailable:"));
    slow->mem_shmem = ftf_kb(ftf_number_of(text, "Shmem:"));
    slow->swap_free = ftf_kb(ftf_number_of(text, "SwapFree:"));
    struct statfs shm;
    if (ftf_syscall2(SYS_statfs, "/dev/shm", &shm) == 0) {
        slow->shm_size = (uint64_t)shm.f_blocks * (uint64_t)shm.f_bsize;
        slow->shm_used = (uint64_t)(shm.f_blocks - shm.f_bfree) * (uint64_t)shm.f_bsize;
    }
    if (!leader)
        return;
    slow->oom_kill = ftf_number_of(ftf_read_file("/proc/vmstat"), "oom_kill");
    text = ftf_read_file("/proc/pressure/memory");
    slow->psi_some = pressure(text, "some ");
    slow->psi_full = pressure(text, "full ");
}

/* CONTEXT: SIGNAL. See ftf_ring_write.h and, for the format, ftf_ring.h.

   A mapped file that is truncated, or whose file system has no room for a page after all, answers a store with SIGBUS. The
   handler for faults (ftf_handler.c) asks ftf_ring_take_fault() first. A fault whose signal is blocked would kill the
   process at once, so SIGBUS is unblocked around every store: two system calls, under a microsecond. */
#include "ftf_ring_write.h"

#include <string.h>
#include <sys/mman.h>

struct ftf_ring_state ftf_ring;

bool ftf_ring_is_ours(void)
{
    return __atomic_load_n(&ftf_ring.base, __ATOMIC_ACQUIRE) != 0 && !ftf_ring.lost && ftf_ring.pid == ftf_getpid();
}

static uint64_t unblock_bus_error(void)
{
    uint64_t bus = ftf_signal_bit(SIGBUS), old = 0;
    ftf_sigprocmask(SIG_UNBLOCK, &bus, &old);
    return old;
}

static void block_again(uint64_t old)
{
    uint64_t bus = ftf_signal_bit(SIGBUS);
    if (old & bus)
        ftf_sigprocmask(SIG_BLOCK, &bus, 0);
}

struct open_slot {
    uint8_t *bytes;
    size_t size;
    uint64_t number;
};

static void set_number(uint8_t *at, uint64_t number) { __atomic_store_n((uint64_t *)at, number, __ATOMIC_RELEASE); }

static struct open_slot open_slot(enum ftf_ring_section section)
{
    const struct ftf_ring_table *table = &ftf_ring.table[section];
    uint64_t number = __atomic_add_fetch(&ftf_ring.numbers[section], 1, __ATOMIC_RELAXED);
    struct open_slot slot = {ftf_ring.base + table->offset + (number - 1) % table->count * table->slot, table->slot,
                             number};
    set_number(slot.bytes, 0);
    set_number(slot.bytes + slot.size - 8, 0);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return slot;
}

static void close_slot(const struct open_slot *slot)
{
    set_number(slot->bytes + slot->size - 8, slot->number);
    set_number(slot->bytes, slot->number);
}

void ftf_ring_put(enum ftf_ring_section section, const void *content)
{
    if (!ftf_ring_is_ours())
        return;
    uint64_t mask = unblock_bus_error();
    struct open_slot slot = open_slot(section);
    memcpy(slot.bytes + 8, (const uint8_t *)content + 8, slot.size - 16);
    close_slot(&slot);
    block_again(mask);
}

void ftf_ring_put_text(enum ftf_ring_section section, int64_t at, const char *text, size_t length)
{
    if (!ftf_ring_is_ours())
        return;
    size_t room = ftf_ring.table[section].slot - sizeof(struct ftf_ring_text) - 8;
    struct ftf_ring_text head = {.at = at, .length = (uint32_t)(length < room ? length : room)};
    uint64_t mask = unblock_bus_error();
    struct open_slot slot = open_slot(section);
    memcpy(slot.bytes + 8, (const uint8_t *)&head + 8, sizeof head - 8);
    memcpy(slot.bytes + sizeof head, text, head.length);
    close_slot(&slot);
    block_again(mask);
}

void ftf_ring_put_signal(int sig, const siginfo_t *info, int64_t at, bool fatal)
{
    struct ftf_ring_signal seen = {.at = at, .signal = sig, .code = info->si_code, .fatal = fatal};
    if (info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL) {
        seen.sent = 1;
        seen.pid = info->si_pid;
        seen.uid = info->si_uid;
    }
    ftf_ring_put(FTF_RING_SIGNALS, &seen);
}

void ftf_ring_end(enum ftf_ring_how how)
{
    if (!ftf_ring_is_ours())
        return;
    struct ftf_ring_header *header = (struct ftf_ring_header *)ftf_ring.base;
    uint64_t mask = unblock_bus_error();
    header->end_ns = how == FTF_RING_RUNNING ? 0 : ftf_clock_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&header->end_how, (uint32_t)how, __ATOMIC_RELEASE);
    block_again(mask);
}

void ftf_ring_store(size_t offset, const void *value, size_t size)
{
    if (!ftf_ring_is_ours())
        return;
    uint64_t mask = unblock_bus_error();
    memcpy(ftf_ring.base + offset, value, size);
    block_again(mask);
}

bool ftf_ring_take_fault(int sig, const siginfo_t *info)
{
    const uint8_t *base = __atomic_load_n(&ftf_ring.base, __ATOMIC_ACQUIRE);
    const uint8_t *address = info->si_addr;
    if (sig != SIGBUS || info->si_code <= 0 || !base || address < base || address >= base + ftf_ring.size)
        return false;
    long mapped = ftf_syscall6(SYS_mmap, (long)base, (long)ftf_ring.size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (mapped != (long)base)
        return false;
    ftf_ring.lost = true;
    return true;
}

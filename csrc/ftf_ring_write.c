/* CONTEXT: SIGNAL. See ftf_ring_write.h and, for the format, ftf_ring.h.

   The ring is kept in plain memory, and what changed is copied into a shared mapping of the file. A store to a page of a
   file that is being written back waits for the disk (the file system's page_mkwrite), so a job's thread must not do it: on
   a frozen or overloaded disk step() would stand still, with the GIL held. The job's threads touch memory only, the watcher
   alone waits for disks, and whoever ends the process (a crash, a signal's default action, exit) saves what is left itself.
   Not by pwrite(2): the job may close our descriptor and get its number for a file of its own between check and write (the
   crash matrix, cell fd_reused, has seen it). */
#include "ftf_ring_write.h"

#include "ftf_peek.h"

#include <string.h>
#include <sys/mman.h>

struct ftf_ring_state ftf_ring;

bool ftf_ring_is_ours(void)
{
    return __atomic_load_n(&ftf_ring.base, __ATOMIC_ACQUIRE) != 0 && ftf_ring.pid == ftf_getpid();
}

static void header_has_changed(void) { __atomic_store_n(&ftf_ring.header_changed, true, __ATOMIC_RELEASE); }

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
    struct open_slot slot = open_slot(section);
    memcpy(slot.bytes + 8, (const uint8_t *)content + 8, slot.size - 16);
    close_slot(&slot);
}

void ftf_ring_put_text(enum ftf_ring_section section, int64_t at, const char *text, size_t length)
{
    if (!ftf_ring_is_ours())
        return;
    size_t room = ftf_ring.table[section].slot - sizeof(struct ftf_ring_text) - 8;
    struct ftf_ring_text head = {.at = at, .length = (uint32_t)(length < room ? length : room)};
    struct open_slot slot = open_slot(section);
    memcpy(slot.bytes + 8, (const uint8_t *)&head + 8, sizeof head - 8);
    memcpy(slot.bytes + sizeof head, text, head.length);
    close_slot(&slot);
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
    header->end_ns = how == FTF_RING_RUNNING ? 0 : ftf_clock_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&header->end_how, (uint32_t)how, __ATOMIC_RELEASE);
    header_has_changed();
}

void ftf_ring_store(size_t offset, const void *value, size_t size)
{
    if (!ftf_ring_is_ours())
        return;
    memcpy(ftf_ring.base + offset, value, size);
    header_has_changed();
}

static bool something_is_new(void)
{
    if (__atomic_load_n(&ftf_ring.header_changed, __ATOMIC_ACQUIRE) || ftf_ring.anew)
        return true;
    for (int section = 0; section < FTF_RING_SECTIONS; section++)
        if (__atomic_load_n(&ftf_ring.numbers[section], __ATOMIC_ACQUIRE) != ftf_ring.saved[section])
            return true;
    return false;
}

/* As in memory: no numbers while the content is in the making, so that nobody takes half of the old and half of the new
   for a slot. One that changed under the copy keeps its zeros until its turn comes again. */
static void store_slot(uint8_t *to, const uint8_t *from, size_t size)
{
    uint64_t number = __atomic_load_n((const uint64_t *)from, __ATOMIC_ACQUIRE);
    set_number(to, 0);
    set_number(to + size - 8, 0);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    memcpy(to + 8, from + 8, size - 16);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n((const uint64_t *)from, __ATOMIC_ACQUIRE) != number ||
        __atomic_load_n((const uint64_t *)(from + size - 8), __ATOMIC_ACQUIRE) != number)
        return;
    set_number(to + size - 8, number);
    set_number(to, number);
}

/* Stores of our own, not the kernel's (process_vm_readv would not raise SIGBUS): the kernel's wait for the disk with the
   lock of the address space held, and with that every mmap(2) of the job's. User space's faults have not needed that lock
   since Linux 6.4. A file that was cut is met by the look before; the handler is for what the look cannot see. */
static bool write_all(size_t offset, size_t size, bool slot)
{
    uint8_t byte;
    uint64_t bus = ftf_signal_bit(SIGBUS), old = 0;
    if (!ftf_peek((uint64_t)(uintptr_t)(ftf_ring.file + offset), &byte, 1) ||
        !ftf_peek((uint64_t)(uintptr_t)(ftf_ring.file + offset + size - 1), &byte, 1)) {
        ftf_ring.lost = true;
        return false;
    }
    ftf_sigprocmask(SIG_UNBLOCK, &bus, &old); /* a fault whose signal is blocked kills at once */
    if (slot)
        store_slot(ftf_ring.file + offset, ftf_ring.base + offset, size);
    else
        memcpy(ftf_ring.file + offset, ftf_ring.base + offset, size);
    if (old & bus)
        ftf_sigprocmask(SIG_BLOCK, &bus, 0);
    return !ftf_ring.lost;
}

bool ftf_ring_take_fault(int sig, const siginfo_t *info)
{
    const uint8_t *file = ftf_ring.file, *address = info->si_addr;
    if (sig != SIGBUS || info->si_code <= 0 || !file || address < file || address >= file + ftf_ring.size)
        return false;
    long mapped = ftf_syscall6(SYS_mmap, (long)file, (long)ftf_ring.size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    ftf_ring.lost = true;
    return mapped == (long)file;
}

static bool save_section(enum ftf_ring_section section, uint64_t saved)
{
    const struct ftf_ring_table *table = &ftf_ring.table[section];
    uint64_t newest = __atomic_load_n(&ftf_ring.numbers[section], __ATOMIC_ACQUIRE);
    if (newest - saved > table->count)
        saved = newest - table->count;
    while (saved < newest) {
        size_t offset = table->offset + saved % table->count * table->slot;
        if (__atomic_load_n((uint64_t *)(ftf_ring.base + offset), __ATOMIC_ACQUIRE) < saved + 1)
            break; /* in the making */
        if (!write_all(offset, table->slot, true))
            return false;
        saved++;
    }
    ftf_ring.saved[section] = saved;
    return true;
}

/* The header comes last: until it is there for the first time, the file is no ring. */
static bool save_into_file(bool anew)
{
    bool header = __atomic_exchange_n(&ftf_ring.header_changed, false, __ATOMIC_ACQ_REL) || anew;
    bool whole = true;
    for (int section = 0; whole && section < FTF_RING_SECTIONS; section++)
        whole = save_section(section, anew ? 0 : ftf_ring.saved[section]);
    if (whole && (!header || write_all(0, FTF_RING_HEADER_BYTES, false)))
        return true;
    uint32_t trouble = FTF_RING_WRITE_FAILED;
    ftf_ring_store(offsetof(struct ftf_ring_header, trouble), &trouble, sizeof trouble);
    return false;
}

void ftf_ring_save(void)
{
    if (!ftf_ring_is_ours() || !ftf_ring.file || ftf_ring.lost || !something_is_new())
        return;
    bool anew = __atomic_exchange_n(&ftf_ring.anew, false, __ATOMIC_ACQ_REL);
    if (!save_into_file(anew) && anew)
        __atomic_store_n(&ftf_ring.anew, true, __ATOMIC_RELEASE);
}

void ftf_ring_save_soon(void)
{
    if (__atomic_load_n(&ftf.watcher_tid, __ATOMIC_ACQUIRE) == 0) {
        ftf_ring_save();
        return;
    }
    uint32_t quiet = FTF_BELL_QUIET;
    if (__atomic_compare_exchange_n(&ftf.bell, &quiet, FTF_BELL_RUNG, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ftf_futex(&ftf.bell, FUTEX_WAKE_PRIVATE, 1, 0);
}

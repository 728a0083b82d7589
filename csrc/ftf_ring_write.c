/* CONTEXT: SIGNAL. See ftf_ring_write.h and, for the format, ftf_ring.h.

   The ring is kept in plain memory, and what changed is copied into the file by pwrite(2). Stores into a shared mapping of
   the file would save the call, but a store to a page that is being written back waits for the disk (the file system's
   page_mkwrite), and so would step(), with the GIL held: on a frozen or overloaded disk the whole job stands still. And a
   mapped file that somebody truncates answers with SIGBUS. So the job's threads touch memory only, the watcher alone waits
   for disks, and whoever ends the process (a crash, a signal's default action, exit) saves what is left itself. */
#include "ftf_ring_write.h"

#include <string.h>
#include <sys/resource.h>

struct ftf_ring_state ftf_ring = {.file = {.fd = -1}};

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

static bool is_our_file(int fd, struct stat *st)
{
    return ftf_fstat(fd, st) == 0 && (uint64_t)st->st_dev == ftf_ring.file.device &&
           (uint64_t)st->st_ino == ftf_ring.file.inode;
}

static bool write_all(int fd, size_t offset, size_t size)
{
    while (size > 0) {
        long wrote = ftf_syscall4(SYS_pwrite64, fd, ftf_ring.base + offset, size, offset);
        if (wrote <= 0)
            return false;
        offset += (size_t)wrote;
        size -= (size_t)wrote;
    }
    return true;
}

/* A slot that changes while it is copied has different numbers at its ends in the file, and its turn comes again. */
static bool save_section(int fd, enum ftf_ring_section section, uint64_t saved)
{
    const struct ftf_ring_table *table = &ftf_ring.table[section];
    uint64_t newest = __atomic_load_n(&ftf_ring.numbers[section], __ATOMIC_ACQUIRE);
    if (newest - saved > table->count)
        saved = newest - table->count;
    while (saved < newest) {
        size_t offset = table->offset + saved % table->count * table->slot;
        if (__atomic_load_n((uint64_t *)(ftf_ring.base + offset), __ATOMIC_ACQUIRE) < saved + 1)
            break; /* in the making */
        if (!write_all(fd, offset, table->slot))
            return false;
        saved++;
    }
    ftf_ring.saved[section] = saved;
    return true;
}

/* The header comes last: until it is there for the first time, the file is no ring. */
static bool save_into(int fd, bool anew)
{
    bool header = __atomic_exchange_n(&ftf_ring.header_changed, false, __ATOMIC_ACQ_REL) || anew;
    bool whole = true;
    for (int section = 0; whole && section < FTF_RING_SECTIONS; section++)
        whole = save_section(fd, section, anew ? 0 : ftf_ring.saved[section]);
    if (whole && (!header || write_all(fd, 0, FTF_RING_HEADER_BYTES)))
        return true;
    uint32_t trouble = FTF_RING_WRITE_FAILED;
    ftf_ring_store(offsetof(struct ftf_ring_header, trouble), &trouble, sizeof trouble);
    return false;
}

/* A write beyond the limit on file size is SIGXFSZ (mm/filemap.c, generic_write_check_limits()). */
static bool limit_allows(void)
{
    struct rlimit limit;
    return ftf_syscall4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit) != 0 || limit.rlim_cur >= ftf_ring.size;
}

void ftf_ring_save(void)
{
    struct stat st;
    if (!ftf_ring_is_ours() || !something_is_new() || !limit_allows())
        return;
    bool anew = __atomic_exchange_n(&ftf_ring.anew, false, __ATOMIC_ACQ_REL);
    int fd = ftf_ring.file.fd, opened = -1;
    if (fd < 0 || !is_our_file(fd, &st)) { /* the job has closed it */
        fd = opened = (int)ftf_open(ftf_ring.path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
        if (fd >= 0 && !is_our_file(fd, &st))
            fd = -1;
    }
    bool done = false;
    if (fd >= 0) {
        if ((size_t)st.st_size < ftf_ring.size) { /* somebody has cut it */
            anew = true;
            if (ftf_syscall4(SYS_fallocate, fd, 0, 0, ftf_ring.size) != 0)
                ftf_ftruncate(fd, (long)ftf_ring.size);
        }
        done = save_into(fd, anew);
    }
    if (anew && !done)
        __atomic_store_n(&ftf_ring.anew, true, __ATOMIC_RELEASE);
    if (opened >= 0)
        ftf_close(opened);
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

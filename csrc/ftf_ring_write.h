/* CONTEXT: SIGNAL. Writing slots into the flight recorder's ring, from any thread and from signal handlers, and from there
   into its file. */
#ifndef FTF_RING_WRITE_H
#define FTF_RING_WRITE_H

#include "ftf_ring.h"
#include "ftf_state.h"

struct ftf_ring_state {
    uint8_t *base; /* the ring in memory, NULL: there is none */
    size_t size;
    int pid; /* whose it is: a forked child that has not noticed yet must not write */
    struct ftf_ring_table table[FTF_RING_SECTIONS];
    uint64_t numbers[FTF_RING_SECTIONS]; /* of the newest slot */
    uint64_t saved[FTF_RING_SECTIONS]; /* of the newest slot that is in the file, as all before it */
    bool header_changed; /* since it was saved */
    bool anew; /* the file has nothing of it yet */
    uint8_t *file; /* mapped */
    bool lost; /* the file was cut, or its disk is full and a page was taken from it */
    uint64_t device, inode; /* of the file */
    char path[FTF_PATH_SIZE + 600];
};

extern struct ftf_ring_state ftf_ring;

bool ftf_ring_is_ours(void);
/* Writes one slot: `slot` is the whole struct, whose first and last eight bytes are filled in here. Without a ring it does
   nothing. Needs no lock between sections; two threads may write into one section only if it has slots to spare. */
void ftf_ring_put(enum ftf_ring_section section, const void *slot);
/* The same for a text, cut at what the slot holds. */
void ftf_ring_put_text(enum ftf_ring_section section, int64_t at, const char *text, size_t length);
void ftf_ring_put_signal(int sig, const siginfo_t *info, int64_t at, bool fatal);
void ftf_ring_end(enum ftf_ring_how how);
/* Writes a field of the header. */
void ftf_ring_store(size_t offset, const void *value, size_t size);
/* Brings the file up to date. May wait for its disk, however long that takes: for the watcher, and for a thread with which
   the process ends. What fails is tried again by the next call. */
void ftf_ring_save(void);
/* Has the watcher do so at once; does it here when there is no watcher. */
void ftf_ring_save_soon(void);
/* Called first for every fault: true when it was a bus error in the mapped file. Its pages are replaced by pages that go
   nowhere, so the instruction can run again. */
bool ftf_ring_take_fault(int sig, const siginfo_t *info);

#endif

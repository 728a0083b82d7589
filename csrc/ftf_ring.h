/* CONTEXT: ANY. The flight recorder's file, byte by byte, and writing into it.

   Everything is little-endian (both architectures that we build for are) and at fixed places. A header is followed by
   sections; the header's table says where each lies, how large its slots are and how many it has. Every section is a
   ring of slots, also where there are only two of them (a text that is rewritten now and then).

   A slot begins with its number, 1 for the first that was ever written into the section, and ends with the same number.
   Both are zero while it is being written, so a process that is killed in the middle loses that slot and nothing else,
   and whoever copies the file while we write sees that a slot changed under him. The newest slot is the one with the
   highest number; there is no head to go stale.

   wire/ring.py states the same layout for reading, tests/synth/ring.py once more for the tests. A change here is a new
   FTF_RING_VERSION. */
#ifndef FTF_RING_H
#define FTF_RING_H

#include "ftf_context.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ring is little-endian"
#endif

#define FTF_RING_MAGIC "FTFRING" /* and a zero */
#define FTF_RING_VERSION 1
#define FTF_RING_UNKNOWN UINT64_MAX /* a figure that could not be read */
#define FTF_RING_UNLIMITED (UINT64_MAX - 1) /* a limit that is none */

enum ftf_ring_section {
    FTF_RING_JOB,     /* text: what was known at install */
    FTF_RING_PROCESS, /* text: what belongs to this very process, and the names of its control groups */
    FTF_RING_THREADS, /* text: names of its threads */
    FTF_RING_PHASE,   /* text: the open phases, joined by " > " */
    FTF_RING_NOTE,    /* text */
    FTF_RING_STEP,
    FTF_RING_FAST,
    FTF_RING_SLOW,
    FTF_RING_SIGNALS,
    FTF_RING_MARKS, /* phases, steps and notes as they came */
    FTF_RING_SECTIONS
};

enum ftf_ring_how { FTF_RING_RUNNING, FTF_RING_EXIT, FTF_RING_CRASH, FTF_RING_EXEC, FTF_RING_UNINSTALL };
enum ftf_ring_trouble { FTF_RING_NO_TROUBLE, FTF_RING_WRITE_FAILED };
enum ftf_ring_mark { FTF_RING_MARK_PHASE = 1, FTF_RING_MARK_STEP, FTF_RING_MARK_NOTE };

struct ftf_ring_table {
    uint64_t offset;
    uint32_t slot; /* bytes */
    uint32_t count;
};

/* Nanoseconds. */
struct ftf_ring_clocks {
    int64_t realtime, monotonic, boottime;
};

struct ftf_ring_header {
    char magic[8];
    uint32_t version;
    uint32_t header_size;
    uint64_t file_size;
    char tool[24]; /* version of ftforensics, zero-terminated */
    int32_t pid;
    int32_t ppid;
    uint64_t start_ticks;
    int32_t fork_of; /* 0: none */
    int32_t worker_of; /* 0: none */
    uint32_t uid;
    uint32_t end_code; /* exit status of FTF_RING_EXIT, 0: none told; written before end_how */
    int64_t rank; /* -1: none, as the next two */
    int64_t local_rank;
    int64_t world_size;
    uint64_t pid_namespace; /* inode numbers of /proc/self/ns, 0: unknown */
    uint64_t cgroup_namespace;
    uint64_t cpu_limit_soft; /* seconds */
    uint64_t cpu_limit_hard;
    char boot_id[40];
    int64_t installed_ns; /* monotonic */
    struct ftf_ring_clocks clocks; /* when the ring was made; later ones are in the slow samples */
    uint32_t period_us; /* between fast samples, now */
    uint32_t end_how; /* enum ftf_ring_how, written after end_ns */
    int64_t end_ns; /* monotonic */
    uint32_t trouble; /* enum ftf_ring_trouble */
    uint32_t sections; /* FTF_RING_SECTIONS */
    struct ftf_ring_table table[FTF_RING_SECTIONS];
};

#define FTF_RING_HEADER_BYTES 512

/* A slot of a text section is as large as the table says: number, length, bytes, and the number again at its very end. */
struct ftf_ring_text {
    uint64_t number;
    int64_t at; /* monotonic nanoseconds, as every `at` */
    uint32_t length;
    uint32_t reserved;
    char bytes[];
};

struct ftf_ring_step {
    uint64_t number;
    int64_t at;
    int64_t step;
    uint64_t check;
};

struct ftf_ring_fast {
    uint64_t number;
    int64_t at;
    uint64_t rss_anon, rss_file, rss_shmem; /* bytes, as all sizes */
    uint64_t usage;
    uint64_t available;
    uint64_t check;
};

#define FTF_RING_CHILDREN 8
#define FTF_RING_GROUPS 10

struct ftf_ring_child {
    int32_t pid;
    uint32_t reserved;
    uint64_t rss;
    char name[16]; /* zero-terminated */
};

/* One level of the chain: own group first. Its name is in the text of the process with the same `chain` number. */
struct ftf_ring_group {
    uint64_t usage, limit, high, peak;
    uint64_t anon, file, shmem, swap;
    uint64_t oom, oom_kill, oom_group_kill;
    uint64_t local_oom, local_oom_kill;
    uint64_t max_events, failcnt;
    uint64_t inode;
};

struct ftf_ring_slow {
    uint64_t number;
    int64_t at;
    int64_t realtime, boottime; /* at the same instant */
    uint64_t vm_size, swap, threads;
    int64_t oom_score_adj; /* INT64_MAX: unknown */
    uint64_t cpu_ns;
    uint64_t children_count, children_rss;
    uint64_t gpu_used, gpu_total;
    uint64_t oom_kill;
    uint64_t mem_total, mem_available, mem_shmem, swap_free;
    uint64_t psi_some, psi_full; /* hundredths of a percent, avg10 */
    uint64_t shm_used, shm_size;
    int32_t ppid;
    uint32_t chain;
    uint32_t groups;
    uint32_t children;
    struct ftf_ring_child child[FTF_RING_CHILDREN];
    struct ftf_ring_group group[FTF_RING_GROUPS];
    uint64_t check;
};

struct ftf_ring_signal {
    uint64_t number;
    int64_t at;
    int32_t signal;
    int32_t code; /* si_code */
    int32_t pid;
    uint32_t uid;
    uint32_t sent; /* 1: a process sent it, pid and uid are its own */
    uint32_t fatal; /* 1: its default action ends the process, and there is no other */
    uint64_t reserved;
    uint64_t check;
};

#define FTF_RING_MARK_BYTES 208

struct ftf_ring_marked {
    uint64_t number;
    int64_t at;
    uint32_t kind; /* enum ftf_ring_mark */
    uint32_t length;
    int64_t step;
    uint64_t reserved;
    char text[FTF_RING_MARK_BYTES];
    uint64_t check;
};

_Static_assert(offsetof(struct ftf_ring_header, pid) == 48, "header");
_Static_assert(offsetof(struct ftf_ring_header, end_code) == 76, "header");
_Static_assert(offsetof(struct ftf_ring_header, rank) == 80, "header");
_Static_assert(offsetof(struct ftf_ring_header, cpu_limit_soft) == 120, "header");
_Static_assert(offsetof(struct ftf_ring_header, installed_ns) == 176, "header");
_Static_assert(offsetof(struct ftf_ring_header, period_us) == 208, "header");
_Static_assert(offsetof(struct ftf_ring_header, end_ns) == 216, "header");
_Static_assert(offsetof(struct ftf_ring_header, table) == 232, "header");
_Static_assert(sizeof(struct ftf_ring_header) <= FTF_RING_HEADER_BYTES, "header");
_Static_assert(sizeof(struct ftf_ring_text) == 24, "text");
_Static_assert(sizeof(struct ftf_ring_step) == 32, "step");
_Static_assert(sizeof(struct ftf_ring_fast) == 64, "fast sample");
_Static_assert(sizeof(struct ftf_ring_child) == 32, "child");
_Static_assert(sizeof(struct ftf_ring_group) == 128, "group");
_Static_assert(offsetof(struct ftf_ring_slow, ppid) == 176, "slow sample");
_Static_assert(offsetof(struct ftf_ring_slow, child) == 192, "slow sample");
_Static_assert(offsetof(struct ftf_ring_slow, group) == 448, "slow sample");
_Static_assert(sizeof(struct ftf_ring_slow) == 1736, "slow sample");
_Static_assert(sizeof(struct ftf_ring_signal) == 56, "signal");
_Static_assert(sizeof(struct ftf_ring_marked) == 256, "mark");

#endif

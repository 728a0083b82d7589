/* CONTEXT: ANY. Everything the handler knows, in one statically allocated struct: prepared by install (NORMAL), read and
   completed by the handler (SIGNAL). Nothing here is allocated at crash time. */
#ifndef FTF_STATE_H
#define FTF_STATE_H

#include "ftf_context.h"
#include "ftf_fmt.h"
#include "ftf_sys.h"

#define FTF_PATH_SIZE 4096
#define FTF_FAULT_SIGNALS 5
#define FTF_NOTED_SIGNALS 5
#define FTF_CHAIN_SIZE 8
#define FTF_SEEN_SIZE 16
#define FTF_MAX_THREADS 8192
#define FTF_MAX_MAPS 65536
#define FTF_MAX_FRAMES 512
#define FTF_MAX_CRASHERS 32
#define FTF_MAX_STAGES 40
#define FTF_MAX_ARGV 32
#define FTF_MAX_ENV 64
#define FTF_PHASE_DEPTH 16
#define FTF_PHASE_SIZE 804 /* capture/marks.py cuts before: MAX_NAME characters of 4 bytes */
#define FTF_NOTE_SIZE 4096 /* the same, MAX_NOTE */
#define FTF_SPACE_RESERVED (512 * 1024) /* bytes of disk that fallocate() keeps for a record */
#define FTF_STACK_BYTES (32 * 1024) /* raw stack kept in the record */
#define FTF_CODE_BYTES 256
#define FTF_BUDGET_MS 4000 /* all steps together, without the crash reporter */
#define FTF_REPORTER_MS 9500 /* the crash reporter is killed after this */
#define FTF_SECOND_CRASHER_MS (FTF_BUDGET_MS + FTF_REPORTER_MS + 1500)

struct ftf_range {
    uint64_t start, end;
};

enum ftf_progress { FTF_IDLE, FTF_RECORDING, FTF_DONE };

/* A file descriptor that the job may close and get again for a file of its own: compared by device and inode before use. */
struct ftf_fd {
    int fd; /* -1: none */
    uint64_t device;
    uint64_t inode;
};

struct ftf_chained {
    struct ftf_action action;
    int64_t noticed_ns; /* monotonic; 0 for the action found at install */
    bool visited; /* ran once during this death; a second time would loop */
    bool taken_back; /* it had replaced us */
    char library[192]; /* path of the mapping that holds the handler, "" when unknown */
    uint64_t library_base;
};

/* Handlers behind us, oldest first; the newest runs first. */
struct ftf_chain {
    int count;
    struct ftf_chained entries[FTF_CHAIN_SIZE];
};

struct ftf_seen {
    int signal;
    int code;
    int pid;
    unsigned uid;
    int64_t ns; /* monotonic */
};

struct ftf_thread {
    int tid;
    uint8_t signalled;
    uint8_t held;
    uint8_t deaf; /* blocks the hold signal: runs on */
    char name[17]; /* told by the thread itself when it is held */
};

struct ftf_map {
    uint64_t start, end, offset, inode;
    uint32_t name, name_length; /* in maps_text */
    uint32_t line, line_length;
    uint8_t readable, writable, executable;
};

struct ftf_frame {
    uint64_t pc, sp;
};

struct ftf_walk {
    const char *unwinder;
    const char *start;
    const char *trust; /* of all frames but the first */
    int count;
    bool complete;
    struct ftf_frame frames[FTF_MAX_FRAMES];
};

enum ftf_cause { FTF_OK = 0, FTF_CUT = 1000, FTF_SKIPPED = 1001, FTF_DIED = 1002 };

struct ftf_stage {
    const char *name;
    int64_t ns;
    int cause; /* FTF_OK, a signal number, FTF_CUT, FTF_SKIPPED, FTF_DIED or a negative errno */
    const char *text; /* literal, overrides the text of `cause` */
    int count; /* a number behind `text`, -1 for none */
};

/* Stacks, each between guard pages. */
struct ftf_stack {
    uint8_t *base;
    size_t size;
};

struct ftf_state {
    /* configuration, written by install */
    bool installed;
    bool raw_stack;
    char directory[FTF_PATH_SIZE];
    char stem[512];
    char *static_members;
    size_t static_size;
    char *helper_argv[FTF_MAX_ARGV + 4];
    char *helper_env[FTF_MAX_ENV + 1];
    char *inventory_argv[FTF_MAX_ARGV + 4];
    char memory_usage_file[512];
    char memory_limit_file[512];
    char boot_id[40];
    int64_t installed_ns;
    void (*restorer)(void); /* glibc's signal-return trampoline, which unwinders recognise */
    unsigned long restorer_flag; /* SA_RESTORER on x86-64; aarch64 returns through the vdso instead */
    bool no_sandbox; /* valgrind ends a program that uses clone(CLONE_VM) in our way */
    const char *unwind_safety; /* "lockfree" or "loader-lock" */
    struct abort_text **abort_message; /* glibc's __abort_msg, or NULL */
    struct ftf_range fatal_error[3]; /* CPython's Py_FatalError and its kin */
    void *(*cxa_get_globals[4])(void); /* one a loaded libstdc++ */
    int cxa_count;

    /* this process, renewed in a forked child */
    int pid;
    int fork_of;
    int worker_of; /* pid of the rank, 0 when this is none of its workers */
    uint64_t start_ticks;
    uint64_t arg_start;
    char path[FTF_PATH_SIZE + 600];
    struct ftf_fd record_fd; /* O_TMPFILE, linked at the crash; nothing is left by a clean exit, however it ends */
    struct ftf_fd maps_fd;
    struct ftf_fd task_fd;
    struct ftf_fd spare_fd; /* of the run folder; closed when a new descriptor is needed and none is free */

    /* CPython's own dumper, through faulthandler.register() */
    void (*dump_current)(int);
    void (*dump_all)(int);
    int dump_current_signal;
    int dump_all_signal;
    struct ftf_fd dump_fd;
    void (*frames_dump)(void); /* ftf_frames_dump, in builds with Python */
    bool dumper_broken; /* it was cut: its static re-entry guard stays set for ever */
    int python_state;
    int user_faulthandler_fd;

    /* marks of the job */
    int phase_depth;
    char phases[FTF_PHASE_DEPTH][FTF_PHASE_SIZE];
    int64_t phase_ns;
    bool has_step;
    int64_t step;
    char note[FTF_NOTE_SIZE];

    /* what the inventory process found: whole record lines, swapped as a whole */
    char *inventory;
    size_t inventory_size;

    /* signals */
    struct ftf_chain chains[FTF_FAULT_SIGNALS];
    struct ftf_action noted[FTF_NOTED_SIGNALS];
    struct ftf_seen seen[FTF_SEEN_SIZE];
    unsigned seen_count;

    /* memory */
    struct ftf_stack crash_stack, nested_stack, sandbox_stack, sandbox_signal_stack;
    struct ftf_text line; /* the line being rendered */
    char *maps_text;
    size_t maps_text_size, maps_text_used;
    struct ftf_map *maps;
    int map_count;
    bool maps_truncated;
    char *dump_text;
    size_t dump_text_size, dump_text_used;
    uint8_t *scratch; /* 64 KiB */

    /* the crash */
    uint64_t owner; /* pid << 32 | tid of the thread that records, 0 when none */
    uint32_t progress; /* enum ftf_progress */
    uint32_t release; /* futex: 0 everybody is held, 1 only the main thread, 2 nobody */
    int64_t hold_until_ns;
    int64_t crash_ns; /* monotonic */
    int64_t done_ns;
    int signal;
    bool survivable; /* sent, and not by abort(): a handler of the job's may return */
    siginfo_t *info; /* on the crashing thread's stack: for that thread alone */
    void *context; /* ucontext_t of the crash */
    uint64_t signal_return; /* return address of the handler: the restorer or the vdso */
    stack_t original_stack;
    int crash_pid; /* of the crashing process, which is not always `pid` */
    bool giving_up; /* the fault lies in Py_FatalError's clean-up: see hand_over */
    bool foreign_process; /* it is a child that never ran our fork hooks (vfork, raw clone) */
    uint32_t bell; /* of the watcher: one of */
#define FTF_BELL_QUIET 0
#define FTF_BELL_RUNG 1
#define FTF_BELL_STOP 2
    int watcher_tid;
    int crashers[FTF_MAX_CRASHERS];
    unsigned crasher_count;
    struct ftf_thread *threads;
    int thread_count;
    int hold_signal;
    int deadline_timer; /* id, -1: none */
    void *recovery[5];
    bool recovery_armed;
    bool in_sandbox;
    void (*sandbox_rescue)(void); /* called in the sandbox when it faults or is cut: saves what a step had got */
    uint32_t sandbox_alive; /* futex, cleared by the kernel at the child's end */
    int output_fd;
    struct ftf_walk walk;
    uint8_t code[FTF_CODE_BYTES];
    struct ftf_stage stages[FTF_MAX_STAGES];
    int stage_count;
    struct {
        char type_text[256];
        char what[2048];
        bool found;
    } exception;
};

extern struct ftf_state ftf;
extern const int ftf_fault_signals[FTF_FAULT_SIGNALS];
extern const int ftf_noted_signals[FTF_NOTED_SIGNALS];

int ftf_fault_index(int sig); /* -1 when it is none of ours */
bool ftf_fd_is_ours(const struct ftf_fd *fd);
/* Opens, closing the spare descriptor when the table is full. */
int ftf_open_somehow(const char *path, int flags, int mode);
/* Reads the beginning of /proc/self/task/<tid>/<name>. Returns the bytes read or a negative errno. */
long ftf_read_task_file(int tid, const char *name, char *buffer, size_t size);

#endif

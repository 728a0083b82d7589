/* CONTEXT: SIGNAL. What happens between a fatal signal and the process's death.

   Entry (ftf_on_fault). Runs on the thread's alternate stack, maybe 10 KB without a guard page that another library put
   there, so it needs little and switches at once to a prepared, guarded stack. One thread records: the first to put its
   id into ftf.owner. Others that crash meanwhile wait, bounded. The recording thread may come here again:
     - a step faulted: jump back to the sequencer, which goes on with the next step (ftf_step.h);
     - the record is done and another library's handler, to which we handed the signal, hands it back: see the end.

   Record (record_crash). First every other thread is held (ftf_hold.h), then the steps run in the order written there,
   each rendering into one buffer; only the sequencer writes, whole lines, so a step that fails leaves no bytes. The most
   important comes first. Steps that run foreign code (libgcc's unwinder, CPython's dumper, an exception's what()) run in
   a child that shares our memory, with a deadline. All in all FTF_BUDGET_MS at most, then what is left is skipped, and
   `stages` says so. Last the crash reporter (ftf_reporter.h), bounded by FTF_REPORTER_MS, then `stages` and `end`.

   End (hand_over). The process must die as it would have died without us. The handlers that stood before us run at most
   once each, reached by giving the signal back to the kernel with their action installed (right mask, flags, stack), then
   the default action. A hardware fault returns and the instruction faults again: only so the kernel writes its own line
   and the core holds the true pc. A signal that somebody sent is queued again with its original siginfo
   (rt_tgsigqueueinfo(2), allowed towards ourselves). There is no _exit() here.

   Breaking the SIGNAL rule in any function reached from here turns a crash into a hang. */
#include "ftf_handler.h"

#include "ftf_arch.h"
#include "ftf_cxx.h"
#include "ftf_file.h"
#include "ftf_hold.h"
#include "ftf_maps.h"
#include "ftf_members.h"
#include "ftf_peek.h"
#include "ftf_python.h"
#include "ftf_record.h"
#include "ftf_reporter.h"
#include "ftf_ring_write.h"
#include "ftf_step.h"
#include "ftf_unwind.h"

#include <string.h>

static void write_line(const char *name, int64_t started)
{
    int result = ftf_record_write_line();
    if (result != 0)
        ftf_stage_add(name, ftf_clock_ns(CLOCK_MONOTONIC) - started, result, 0, -1);
    ftf.line.used = 0;
    ftf.line.overflow = false;
}

static bool budget_left(void)
{
    return ftf_clock_ns(CLOCK_MONOTONIC) - ftf.crash_ns < (int64_t)FTF_BUDGET_MS * 1000000;
}

/* A step whose line is complete when it returns. A failed step's member is missing from the record. */
static void member(const char *name, void (*render)(void))
{
    struct ftf_step step = {name, render, 1000, false, false};
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    if (!budget_left()) {
        ftf_stage_add(name, 0, FTF_SKIPPED, 0, -1);
        return;
    }
    if (ftf_step_run(&step) != FTF_OK) {
        ftf.line.used = 0;
        ftf.line.overflow = false;
        return;
    }
    write_line(name, started);
}

static void maps(void) { ftf_maps_read(); }

static int opened;
static void open_record(void) { opened = ftf_record_open(); }
static void open_elsewhere(void) { opened = ftf_record_open_elsewhere(); }

/* Opens by one step and writes the first line. Without its brace nothing that follows would be JSON. */
static bool opened_by(const char *name, void (*open)(void))
{
    struct ftf_step step = {name, open, 1500, true, true};
    opened = -EIO;
    int cause = ftf_step_run(&step);
    if (cause == FTF_OK && opened == 0) {
        ftf.line.used = 0;
        ftf.line.overflow = false;
        ftf_member_schema();
        opened = ftf_record_write_line();
        if (opened == 0)
            return true;
    } else {
        ftf.output_fd = -1;
    }
    if (cause == FTF_OK)
        ftf.stages[ftf.stage_count - 1].cause = opened;
    return false;
}

static void no_record(void)
{
    static const char text[] = "ftforensics: no crash record could be written to the run folder or /tmp\n";
    ftf_record_discard();
    ftf_write(2, text, sizeof text - 1);
}

/* stderr may be a pipe that nobody empties: then whatever is said there waits for ever. */
static void say(const char *name, void (*write)(void))
{
    struct ftf_step step = {name, write, 300, true, false};
    ftf_step_run(&step);
}

static void open_and_begin(void)
{
    ftf_record_begin();
    if (opened_by("open", open_record) || opened_by("open_elsewhere", open_elsewhere))
        return;
    say("no_record", no_record);
}

static void walk(const char *name, void (*unwind)(void), bool sandboxed)
{
    struct ftf_step step = {name, unwind, sandboxed ? 1500 : 1000, sandboxed, false};
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    if (!budget_left()) {
        ftf_stage_add(name, 0, FTF_SKIPPED, 0, -1);
        return;
    }
    ftf.walk.count = 0;
    ftf.walk.trust = "";
    ftf_step_run(&step);
    if (ftf.walk.trust[0] == 0)
        return;
    ftf_member_walk(name); /* what a cut unwinder had found is kept */
    write_line(name, started);
}

/* Nothing came out of the dumper: Py_FatalError has taken it down (ftf_frames.c). */
static void frames_instead(void)
{
    struct ftf_step step = {"python_frames", ftf.frames_dump, 1000, true, false};
    if (ftf.signal == SIGABRT && ftf.frames_dump && ftf.dump_text_used == 0 && budget_left())
        ftf_step_run(&step);
}

static void python(const char *name, void (*dump)(void))
{
    struct ftf_step step = {name, dump, 1500, true, false};
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    const char *refusal = budget_left() ? ftf_python_refusal() : "no time left";
    if (refusal) {
        ftf_stage_add(name, 0, FTF_SKIPPED, refusal, -1);
        return;
    }
    ftf_python_prepare();
    if (ftf_step_run(&step) != FTF_OK) {
        ftf.dumper_broken = true;
        ftf_python_collect();
        frames_instead();
    }
    ftf_member_dump(name);
    write_line(name, started);
}

static void exception(void)
{
    struct ftf_step step = {"cxx_exception", ftf_cxx_read_exception, 500, true, false};
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    ftf.exception.found = false;
    if (ftf.signal == SIGABRT && ftf.cxa_count > 0 && budget_left())
        ftf_step_run(&step);
    ftf_member_exception();
    write_line("cxx_exception", started);
}

/* Is one of the frames just found in Py_FatalError or its kin? */
static bool under_fatal_error(void)
{
    for (int i = 1; i < ftf.walk.count; i++)
        for (size_t k = 0; k < FTF_LENGTH(ftf.fatal_error); k++)
            if (ftf.walk.frames[i].pc > ftf.fatal_error[k].start && ftf.walk.frames[i].pc <= ftf.fatal_error[k].end)
                return true;
    return false;
}

static void fault_file(void)
{
    struct ftf_step step = {"fault_file", ftf_file_ask, 300, true, false};
    int64_t started = ftf_clock_ns(CLOCK_MONOTONIC);
    if (ftf.signal == SIGBUS && !ftf_was_sent(ftf.info) && budget_left())
        ftf_step_run(&step);
    ftf_member_fault_file();
    write_line("fault_file", started);
}

/* faulthandler's own dump prints nothing once its guard is stuck: put our copy where it would have printed. */
static void print_dump(void) { ftf_write(ftf.user_faulthandler_fd, ftf.dump_text, ftf.dump_text_used); }

static void stand_in_for_faulthandler(void)
{
    if (ftf.dumper_broken && ftf.user_faulthandler_fd >= 0 && ftf.dump_text_used > 0)
        say("faulthandler", print_dump);
}

static bool append(void)
{
    bool written = ftf_record_write_line() == 0;
    ftf.line.used = 0;
    ftf.line.overflow = false;
    return written;
}

static int core_lines; /* up to the Python stack: worth more than `stages` */

/* The two members that close the record. Where they do not fit (a full disk, a limit on file size), lines before them go. */
static void close_record(const char *how, uint64_t next)
{
    int kept = ftf_record_lines();
    for (bool complete = false; !complete && kept > 0; kept--) {
        ftf_record_drop_to(kept);
        ftf.line.used = 0;
        ftf.line.overflow = false;
        ftf_member_stages();
        bool stages = append();
        ftf_member_end(how, next);
        complete = append() && (stages || kept <= core_lines);
    }
}

static bool returns_by_fault(int sig, const siginfo_t *info, const void *context);
static const struct ftf_action *next_action(int sig, bool visit);

static void record_crash(void *unused)
{
    (void)unused;
    stack_t nested = {.ss_sp = ftf.nested_stack.base, .ss_size = ftf.nested_stack.size};
    ftf_sigaltstack(&nested, &ftf.original_stack);
    ftf_hold_threads();
    ftf_deadline_create();
    ftf_ring_end(FTF_RING_CRASH);
    open_and_begin();
    member("time", ftf_member_time);
    member("process", ftf_member_process);
    member("signal", ftf_member_signal);
    member("registers", ftf_member_registers);
    ftf_ring_save(); /* after what the record needs most: another disk may be slower */
    struct ftf_step read_maps = {"read_maps", maps, 1000, false, false};
    ftf_step_run(&read_maps);
    member("marks", ftf_member_marks);
    member("abort_message", ftf_member_abort_message);
    exception();
    fault_file();
    walk("native", ftf_unwind_tables, true);
    ftf.giving_up = ftf.signal == SIGSEGV && under_fatal_error();
    python("python", ftf_python_dump_current);
    core_lines = ftf_record_lines();
    member("code", ftf_member_code);
    walk("native_frame_pointer", ftf_unwind_frame_pointers, false);
    walk("native_scan", ftf_unwind_scan, false);
    python("python_threads", ftf_python_dump_all);
    member("stack", ftf_member_stack);
    member("other_crashers", ftf_member_crashers);
    member("signals_seen", ftf_member_signals_seen);
    member("handlers", ftf_member_handlers);
    member("job", ftf_member_job);
    member("limits", ftf_member_limits);
    member("libraries", ftf_member_inventory);
    int missing = ftf_hold_wait(10);
    if (missing > 0)
        ftf_stage_add("held", 0, FTF_SKIPPED, "threads not held", missing);
    member("threads", ftf_member_threads);
    member("modules", ftf_member_modules);
    member("status", ftf_member_status);
    member("maps", ftf_member_maps);
    ftf_reporter_run();

    const struct ftf_action *next = next_action(ftf.signal, false);
    close_record(next                                                  ? "chain"
                 : ftf.giving_up                                       ? "abort"
                 : returns_by_fault(ftf.signal, ftf.info, ftf.context) ? "refault"
                                                                       : "requeue",
                 next ? (uint64_t)(uintptr_t)next->handler : 0);
    stand_in_for_faulthandler();
    ftf_record_finish();

    ftf_deadline_delete();
    ftf_sigaltstack(&ftf.original_stack, 0);
    ftf.done_ns = ftf_clock_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&ftf.progress, FTF_DONE, __ATOMIC_RELEASE);
}

/* ---- the end ---- */

/* Will the same instruction fault again when the handler returns? x86's SI_KERNEL also stands for a signal frame that the
   kernel could not build (force_sigsegv): that does not recur, and such a thread's last trap is none of these. */
static bool returns_by_fault(int sig, const siginfo_t *info, const void *context)
{
    if (ftf_was_sent(info) || sig == SIGABRT)
        return false;
    if (sig == SIGBUS && info->si_code == 5) /* BUS_MCEERR_AO: a warning, no instruction failed */
        return false;
    if (info->si_code == SI_KERNEL)
        return ftf_context_trapped(context);
    return true;
}

/* The newest handler behind us that has not run during this death; NULL: the default action. */
static const struct ftf_action *next_action(int sig, bool visit)
{
    struct ftf_chain *chain = &ftf.chains[ftf_fault_index(sig)];
    for (int i = chain->count - 1; i >= 0; i--) {
        struct ftf_chained *entry = &chain->entries[i];
        if ((uintptr_t)entry->action.handler <= 1)
            return 0; /* default or ignored: nothing older would have run */
        if (entry->visited || entry->action.handler == ftf_on_fault)
            continue;
        entry->visited = visit;
        return &entry->action;
    }
    return 0;
}

/* Is it CPython's one C function for all of signal.signal()? Known by the file it lies in, because nothing exports it.
   faulthandler's lie there too, and put the action that was before back themselves, so nothing is lost for them. */
static bool is_python_level(const struct ftf_action *action)
{
    const struct ftf_map *handler = ftf_maps_find((uint64_t)(uintptr_t)action->handler);
    const struct ftf_map *python = ftf_maps_find(ftf.fatal_error[0].start);
    return handler && python && handler->name_length > 0 && handler->name_length == python->name_length &&
           memcmp(ftf_maps_name(handler), ftf_maps_name(python), handler->name_length) == 0;
}

static void hand_over(int sig, siginfo_t *info, void *context)
{
    static const struct ftf_action standard;
    const struct ftf_action *next = next_action(sig, true);
    struct ftf_action action = next ? *next : standard;
    bool refault = returns_by_fault(sig, info, context);
    if (ftf.giving_up && sig == SIGSEGV) {
        /* Python was about to abort(). On 3.12 and 3.13 its clean-up frees what faulthandler.register() had allocated,
           ours too, and that faults on a thread without the GIL (Python/pylifecycle.c, fatal_error). Without us it would
           have died of SIGABRT, so it does: the pending signal is delivered before the instruction runs again. */
        ftf_sigaction(SIGABRT, &standard, 0);
        ftf_sigaction(sig, &standard, 0);
        ftf_tgkill(ftf_getpid(), ftf_gettid(), SIGABRT);
        return;
    }
    /* CPython's handler for signal.signal() only sets a flag: after a real fault it would be called for ever. */
    if (next && refault && is_python_level(next))
        action.flags |= SA_RESETHAND;
    ftf_sigaction(sig, &action, 0);
    if (next)
        /* A foreign handler may wait for other threads; the main thread stays held a little, so that the process does not
           end as if nothing had happened. A sent signal may be survived: nobody is held. */
        ftf_hold_release(ftf.survivable ? 2 : 1);
    if (!refault && ftf_requeue(ftf_getpid(), ftf_gettid(), sig, info) != 0)
        if (ftf_tgkill(ftf_getpid(), ftf_gettid(), sig) != 0)
            ftf_kill(ftf_getpid(), sig);
}

/* ---- the entry ---- */

static uint64_t identity(int pid, int tid) { return (uint64_t)(uint32_t)pid << 32 | (uint32_t)tid; }

/* Sent to a process that ignores it: nothing happens, as without us. The first process of a container ignores everything
   that is sent to it and that it has no handler for (man 7 pid_namespaces); only abort() gets on, by another way. */
static bool is_ignored(int sig, const siginfo_t *info, int pid)
{
    const struct ftf_chain *chain = &ftf.chains[ftf_fault_index(sig)];
    if (!ftf_was_sent(info) || chain->count == 0)
        return false;
    void *newest = (void *)chain->entries[chain->count - 1].action.handler;
    return newest == (void *)SIG_IGN ||
           (newest == (void *)SIG_DFL && pid == 1 && !(sig == SIGABRT && info->si_pid == pid));
}

/* A signal that was sent can be survived, and before the watcher has seen that, the process may crash for good. */
static bool earlier_one_was_survived(bool sent)
{
    uint32_t done = FTF_DONE;
    return !sent && ftf.survivable &&
           __atomic_compare_exchange_n(&ftf.progress, &done, FTF_RECORDING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static bool become_owner(int pid, int tid, bool sent)
{
    uint64_t mine = identity(pid, tid);
    for (;;) {
        uint64_t owner = __atomic_load_n(&ftf.owner, __ATOMIC_ACQUIRE);
        if (owner >> 32 == (uint64_t)(uint32_t)pid && earlier_one_was_survived(sent)) {
            __atomic_store_n(&ftf.release, 0, __ATOMIC_RELEASE);
            ftf.crasher_count = 0;
            __atomic_store_n(&ftf.owner, mine, __ATOMIC_RELEASE);
            return true;
        }
        if (owner == mine)
            return false;
        /* Another process's id: a vfork child crashed in our memory and is gone, or we are such a child. */
        if (owner != 0 && owner >> 32 == (uint64_t)(uint32_t)pid)
            return false;
        if (__atomic_compare_exchange_n(&ftf.owner, &owner, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return true;
    }
}

static void begin(int sig, siginfo_t *info, void *context, int pid)
{
    ftf.crash_ns = ftf_clock_ns(CLOCK_MONOTONIC);
    ftf.crash_pid = pid;
    ftf.foreign_process = pid != ftf.pid;
    ftf.signal = sig;
    ftf.survivable = ftf_was_sent(info) && !(sig == SIGABRT && info->si_code == SI_TKILL && info->si_pid == pid);
    ftf.info = info;
    ftf.context = context;
    ftf.stage_count = 0;
    ftf.recovery_armed = false;
    ftf.giving_up = false;
    ftf.output_fd = -1;
    __atomic_store_n(&ftf.release, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++)
        for (int k = 0; k < ftf.chains[i].count; k++)
            ftf.chains[i].entries[k].visited = false;
    __atomic_store_n(&ftf.progress, FTF_RECORDING, __ATOMIC_RELEASE);
}

/* A library that chains by calling a one-argument handler, or that re-installed us with signal(), leaves garbage in the
   other two (breakpad repairs the same). Then we know the place, not the fault. */
static void complete_arguments(int sig, siginfo_t **info, void **context, uint64_t pc, uint64_t fp)
{
    static siginfo_t unknown_info;
    static ucontext_t unknown_context;
    int number = 0;
    uint8_t byte;
    if (!ftf_peek((uint64_t)(uintptr_t)*info, &number, sizeof number) || number != sig) {
        unknown_info.si_signo = sig;
        unknown_info.si_code = SI_TKILL;
        unknown_info.si_pid = ftf_getpid();
        *info = &unknown_info;
    }
    if (!ftf_peek((uint64_t)(uintptr_t)*context, &byte, 1) ||
        !ftf_peek((uint64_t)(uintptr_t)*context + sizeof(ucontext_t) - 1, &byte, 1)) {
        ftf_context_set(&unknown_context, pc, fp + 16, fp);
        *context = &unknown_context;
    }
}

void ftf_on_fault(int sig, siginfo_t *info, void *context)
{
    ftf_settle_flags();
    int pid = ftf_getpid();
    int tid = ftf_gettid();
    complete_arguments(sig, &info, &context, (uint64_t)(uintptr_t)__builtin_return_address(0),
                       (uint64_t)(uintptr_t)__builtin_frame_address(0));
    if (is_ignored(sig, info, pid) || ftf_ring_take_fault(sig, info))
        return;
    if (become_owner(pid, tid, ftf_was_sent(info))) {
        begin(sig, info, context, pid);
        ftf.signal_return = (uint64_t)(uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
        ftf_call_on_stack(ftf.crash_stack.base + ftf.crash_stack.size, record_crash, 0);
        hand_over(sig, info, context);
        return;
    }
    uint64_t owner = __atomic_load_n(&ftf.owner, __ATOMIC_ACQUIRE);
    if (owner == identity(pid, tid)) {
        if (__atomic_load_n(&ftf.progress, __ATOMIC_ACQUIRE) == FTF_DONE) {
            hand_over(sig, info, context);
            return;
        }
        if (ftf_was_sent(info) && info->si_pid != pid)
            return; /* somebody kills us while we die already */
        ftf_step_recover(sig);
        /* No step was running: we broke between two of them. Die rather than loop. */
        hand_over(sig, info, context);
        return;
    }
    ftf_hold_second_crasher(FTF_SECOND_CRASHER_MS);
    hand_over(sig, info, context);
}

struct ftf_action ftf_fault_action(void)
{
    struct ftf_action action = {ftf_on_fault, SA_SIGINFO | SA_ONSTACK | SA_NODEFER | ftf.restorer_flag, ftf.restorer,
                                ~UINT64_C(0)};
    for (int i = 0; i < FTF_FAULT_SIGNALS; i++) /* a fault while its signal is blocked kills at once */
        action.mask &= ~ftf_signal_bit(ftf_fault_signals[i]);
    return action;
}

/* CONTEXT: SIGNAL. See ftf_unwind.h.

   _Unwind_Backtrace is lock-free where libgcc finds its tables through _dl_find_object (glibc 2.35); elsewhere it takes
   the loader's lock, which the crashed thread may hold: hence the sandbox and its deadline, and `safety` in the record.
   Frames are stored as they are found, so a fault in the middle keeps those before it. */
#include "ftf_unwind.h"

#include "ftf_arch.h"
#include "ftf_maps.h"
#include "ftf_peek.h"
#include "ftf_step.h"

#include <unwind.h>

#include <string.h>

#define SCAN_BYTES 65536
#define SCAN_FRAMES 96
#define POINTER_FRAMES 128

static ucontext_t start_context; /* a copy: stepping out of a bad call changes it */
static bool started, outermost;

static void begin(const char *unwinder, const char *trust)
{
    ftf.walk.unwinder = unwinder;
    ftf.walk.trust = trust;
    ftf.walk.start = "context";
    ftf.walk.count = 0;
    ftf.walk.complete = false;
}

static bool add(uint64_t pc, uint64_t sp)
{
    if (ftf.walk.count == FTF_MAX_FRAMES)
        return false;
    ftf.walk.frames[ftf.walk.count] = (struct ftf_frame){pc, sp};
    ftf.walk.count++;
    return true;
}

static bool pc_is_bad(uint64_t pc)
{
    uint8_t byte;
    if (ftf.map_count > 0)
        return !ftf_maps_executable(pc);
    return !ftf_peek(pc, &byte, 1);
}

static _Unwind_Reason_Code on_frame(struct _Unwind_Context *frame, void *argument)
{
    (void)argument;
    uint64_t pc = _Unwind_GetIP(frame);
    uint64_t sp = _Unwind_GetCFA(frame);
    if (!started) { /* our own frames and the signal frame come first */
        if (pc != ftf_context_pc(&start_context))
            return _URC_NO_REASON;
        started = true;
        sp = ftf_context_sp(&start_context); /* on aarch64 the CFA is still the signal frame's here */
    }
    outermost = pc == 0;
    if (outermost || !add(pc, sp))
        return _URC_END_OF_STACK;
    return _URC_NO_REASON;
}

static void unwind_from_frame(void *argument)
{
    (void)argument;
    _Unwind_Reason_Code reason = _Unwind_Backtrace(on_frame, 0);
    ftf.walk.complete = started && (outermost || reason == _URC_END_OF_STACK);
    ftf_step_leave();
}

void ftf_unwind_tables(void)
{
    const ucontext_t *crashed = ftf.context;
    memcpy(&start_context, crashed, sizeof start_context);
    begin("libgcc", "cfi");
    started = outermost = false;
    if (pc_is_bad(ftf_context_pc(crashed))) {
        add(ftf_context_pc(crashed), ftf_context_sp(crashed));
        if (!ftf_context_step_out(&start_context, &ftf.walk.start))
            return;
        if (pc_is_bad(ftf_context_pc(&start_context)))
            return; /* libgcc reads the code at pc and would fault */
    }
    ftf_call_below_frame(&start_context, ftf.info, ftf.signal_return,
                         ftf.sandbox_stack.base + ftf.sandbox_stack.size / 2, unwind_from_frame, 0);
}

void ftf_unwind_frame_pointers(void)
{
    const ucontext_t *context = ftf.context;
    uint64_t fp = ftf_context_fp(context);
    uint64_t lowest = 0;
    begin("frame-pointer", "fp");
    add(ftf_context_pc(context), ftf_context_sp(context));
    while (ftf.walk.count < POINTER_FRAMES && fp > lowest && (fp & 7) == 0) {
        uint64_t pair[2]; /* both architectures: saved frame pointer, return address */
        if (!ftf_peek(fp, pair, sizeof pair))
            return;
#if defined(__aarch64__)
        pair[1] &= UINT64_C(0x007fffffffffffff); /* pointer authentication bits, 48-bit user space assumed */
#endif
        if (pair[1] == 0 || !ftf_maps_executable(pair[1]))
            break;
        add(pair[1], fp + 16);
        lowest = fp;
        fp = pair[0];
    }
    ftf.walk.complete = fp == 0;
}

static bool in_readable_map(uint64_t address)
{
    const struct ftf_map *map = ftf_maps_find(address);
    return map && map->readable && map->writable;
}

uint64_t ftf_stack_start(const char **note)
{
    const ucontext_t *context = ftf.context;
    uint64_t sp = ftf_context_sp(context);
    uint64_t fp = ftf_context_fp(context);
    *note = 0;
    if (in_readable_map(sp))
        return sp & ~UINT64_C(7);
    const struct ftf_map *above = sp + 65536 > sp ? ftf_maps_find(sp + 65536) : 0;
    if (above && above->readable && above->writable) { /* an overflow: sp stands in the guard page */
        *note = "the stack pointer is below the stack";
        return above->start;
    }
    if (in_readable_map(fp)) {
        *note = "wild stack pointer: bytes from the frame pointer on";
        return fp & ~UINT64_C(7);
    }
    /* A thread's control block lies at the high end of the mapping that is its stack (glibc, nptl/allocatestack.c). */
    *note = "wild stack pointer: the top of the thread's stack";
    if (ftf_gettid() != ftf.crash_pid) {
        uint64_t self = ftf_thread_pointer();
        const struct ftf_map *map = ftf_maps_find(self);
        if (map)
            return self - map->start > FTF_STACK_BYTES ? (self - FTF_STACK_BYTES) & ~UINT64_C(7) : map->start;
    } else if (ftf.arg_start > FTF_STACK_BYTES) {
        return (ftf.arg_start - FTF_STACK_BYTES) & ~UINT64_C(7);
    }
    return 0;
}

void ftf_unwind_scan(void)
{
    const char *note;
    uint64_t start = ftf_stack_start(&note);
    begin("stack-scan", "scan");
    if (start == 0)
        return;
    size_t size = ftf_peek_some(start, ftf.scratch, SCAN_BYTES);
    for (size_t at = 0; at + 8 <= size && ftf.walk.count < SCAN_FRAMES; at += 8) {
        uint64_t word;
        memcpy(&word, ftf.scratch + at, 8);
        if (ftf_maps_executable(word) && ftf_is_return_address(word))
            add(word, start + at + 8);
    }
    ftf.walk.complete = size < SCAN_BYTES;
}

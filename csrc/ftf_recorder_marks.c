/* CONTEXT: NORMAL. What the job says about itself, into the ring as it says it: the newest of each kind in a section of its
   own, and all of them in the order they came. Steps come by the thousand a second, so of those only some are kept. */
#include "ftf_recorder.h"
#include "ftf_ring_write.h"

#include <sched.h>
#include <string.h>

#define STEP_HISTORY_NS INT64_C(10000000000)

static uint32_t busy; /* a job's thread marks while the watcher's makes the ring */
static int64_t step_told_ns;

static void lock(void)
{
    while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) != 0)
        sched_yield();
}

static void unlock(void) { __atomic_store_n(&busy, 0, __ATOMIC_RELEASE); }

static void history(int kind, int64_t at, const char *text, size_t length, int64_t step)
{
    struct ftf_ring_marked mark = {.at = at, .kind = (uint32_t)kind, .step = step};
    size_t kept = length < sizeof mark.text ? length : sizeof mark.text;
    while (kept > 0 && kept < length && ((unsigned char)text[kept] & 0xc0) == 0x80) /* no half characters */
        kept--;
    mark.length = (uint32_t)kept;
    memcpy(mark.text, text, kept);
    ftf_ring_put(FTF_RING_MARKS, &mark);
}

static void tell_phase(void)
{
    static char joined[FTF_PHASE_DEPTH * FTF_PHASE_SIZE];
    struct ftf_text text = {joined, sizeof joined, 0, false};
    for (int i = 0; i < ftf.phase_depth; i++) {
        ftf_puts(&text, i ? " > " : "");
        ftf_puts(&text, ftf.phases[i]);
    }
    ftf_ring_put_text(FTF_RING_PHASE, ftf.phase_ns, joined, text.used);
    history(FTF_RING_MARK_PHASE, ftf.phase_ns, joined, text.used, 0);
}

static void tell_step(int64_t now)
{
    struct ftf_ring_step step = {.at = now, .step = ftf.step};
    ftf_ring_put(FTF_RING_STEP, &step);
    if (step_told_ns && now - step_told_ns < STEP_HISTORY_NS)
        return;
    step_told_ns = now;
    history(FTF_RING_MARK_STEP, now, "", 0, ftf.step);
}

static void tell_note(int64_t now)
{
    size_t length = strlen(ftf.note);
    ftf_ring_put_text(FTF_RING_NOTE, now, ftf.note, length);
    history(FTF_RING_MARK_NOTE, now, ftf.note, length, 0);
}

void ftf_recorder_phase(void)
{
    lock();
    tell_phase();
    unlock();
    ftf_ring_save_soon();
}

void ftf_recorder_step(void)
{
    lock();
    tell_step(ftf_clock_ns(CLOCK_MONOTONIC));
    unlock();
    ftf_ring_save_soon();
}

void ftf_recorder_note(void)
{
    lock();
    tell_note(ftf_clock_ns(CLOCK_MONOTONIC));
    unlock();
    ftf_ring_save_soon();
}

void ftf_recorder_marks_again(void)
{
    int64_t now = ftf_clock_ns(CLOCK_MONOTONIC);
    lock();
    step_told_ns = 0;
    if (ftf.phase_depth > 0)
        tell_phase();
    if (ftf.has_step)
        tell_step(now);
    if (ftf.note[0])
        tell_note(now);
    unlock();
}

void ftf_recorder_marks_forget(void)
{
    busy = 0;
    step_told_ns = 0;
}

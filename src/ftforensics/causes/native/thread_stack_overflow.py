"""A thread used up its stack.

## What it means

The calls of one thread went so deep, or one function wanted so much local memory, that the thread's stack was full.
The page below the stack is kept empty on purpose, and touching it ends the process with SIGSEGV.

## How it is told apart

The fault address lies in the guard just below the stack of the crashing thread (for the main thread: in the hole
below `[stack]`, with the stack grown to its limit), and the stack pointer is there too. That is likely. It is proven
only when the stack pointer itself stands at or below the stack's last page *and* the faulting instruction is a push,
a call or an access through the stack pointer *and* the memory map shows the guard or the limit: then the processor's
fault address, its registers and the kernel's map of this process say the same thing, and a stray pointer cannot be
mistaken for it. A fault near a stack whose pointer is far from its end is another bug.

A thread that a C library made before `install()`, or without what `run` preloads, has no alternate stack: no handler
can run there once its stack is full, and no record is left. A SIGSEGV without one, of a process whose handlers were
in place, makes this possible, not more.

## What to do

1. Find the function that repeats in the stack: endless recursion is a bug to fix, not a limit to raise.
2. Deep but finite recursion (autograd through very long chains, deeply nested models, `pickle` of linked structures):
   detach or cut the chain.
3. Otherwise raise the limit: `ulimit -s unlimited` for the main thread, `threading.stack_size(512 << 20)` before the
   thread starts, `OMP_STACKSIZE` for OpenMP threads.

## Seen in the field

- `loss` summed over many steps without `detach()`: the backward pass, or the release of the graph, recurses once per
  step.
- `sys.setrecursionlimit()` raised far above what the C stack holds, on Python before 3.12.
- Freed chains of CUDA tensors shared between processes, at exit.

## References

- man 3 pthread_attr_setguardsize, man 2 getrlimit (RLIMIT_STACK)
- Linux mm/mmap.c, stack_guard_gap: 256 pages are kept free below a growing stack
- Python documentation, `threading.stack_size`, `sys.setrecursionlimit`
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.blame import blame_text, line_text
from ftforensics.causes.native.native_fault import left_no_record
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import longest_repeat, places, plain_name
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism

KIND = Kind.OWN_FAULT
SIGSEGV = 11


def check(crash: Crash) -> Iterator[Finding]:
    if crash.reading.mechanism is not Mechanism.STACK_OVERFLOW:
        return
    proven = crash.reading.sp_at_guard and not crash.reading.against and not crash.reading.unknown
    supports = list(crash.reading.supports)
    native = longest_repeat([plain_name(frame) or str(frame.offset) for frame in crash.native])
    if native:
        supports.append(Cite("crash", "native.frames", f"{native[0]} is on the stack {native[1]} times"))
    python = longest_repeat([line_text(frame) for frame in crash.python])
    if python:
        supports.append(Cite("crash", "python", f"{python[0]} is on the stack {python[1]} times"))
    supports += places(crash)
    repeated, large = python or native, crash.reading.plain
    process = crash.record.process
    main = process is not None and process.main_thread
    yield Finding(
        cause="thread-stack-overflow",
        confidence=Confidence.PROVEN if proven else Confidence.LIKELY,
        summary=f"{'The main thread' if main else 'A thread'} ran out of stack"
        + (f", recursing in {repeated[0]}." if repeated else f": {large}." if large else "."),
        supports=supports,
        against=list(crash.reading.against),
        unknown=list(crash.reading.unknown),
        remedies=[
            Remedy(_cure(crash, repeated[0] if repeated else None)),
            Remedy("If the depth is meant, give the stack more room", "ulimit -s unlimited")
            if main
            else Remedy(
                "If the depth is meant, start the thread with a larger stack", "threading.stack_size(512 << 20)"
            ),
        ],
    )


def _cure(crash: Crash, repeated: str | None) -> str:
    if repeated is not None:
        return f"Stop the recursion in {repeated}"
    if crash.reading.plain is not None:
        where = blame_text(crash)
        return f"Take the large array or alloca{f' of {where}' if where else ''} off the stack"
    return "Look for recursion in the stack below"


def check_death(death: Death) -> Iterator[Finding]:
    if death.signal != SIGSEGV or death.alive or not left_no_record(death):
        return
    yield Finding(
        cause="thread-stack-overflow",
        confidence=Confidence.POSSIBLE,
        summary="A native thread may have run out of stack: without an alternate one no handler can run there.",
        supports=list(death.ending),
        remedies=[Remedy("Run it once with what `run` preloads", "ftforensics run -- COMMAND...", settles=True)],
    )

"""The C heap was damaged or misused.

## What it means

Native code wrote past the end of a block, used a block after freeing it, freed it twice, or freed what was never
allocated. glibc's allocator noticed when it next looked at its own lists and ended the process. The code that is on
the stack is often innocent: it only made the next call to `malloc` or `free`.

## How it is told apart

The process aborted itself with one of the allocator's own messages, or from the allocator's error path. That is
likely, not proven: the allocator saw that its lists are inconsistent, but damaged hardware makes them so too, and the
message does not say who did it. A segmentation fault inside `malloc` or `free` is only possible. Without a crash
record it is likely when SIGABRT ended the process and the allocator's message stands in its output.

## What to do

1. Run with `MALLOC_CHECK_=3 MALLOC_PERTURB_=165`, since glibc 2.34 together with
   `LD_PRELOAD=libc_malloc_debug.so.0`: the failure moves closer to the culprit. An AddressSanitizer build or valgrind
   finds it.
2. Look for two copies of one C++ library (libstdc++, jemalloc and glibc mixed): memory allocated by one and freed by
   the other.
3. Rebuild extensions against the installed torch: a wrong layout of a class writes beyond its end.
4. When it happens on one node only, test that node's memory.

## Seen in the field

- "free(): invalid pointer" at import, with an extension that brings its own libstdc++.
- "double free or corruption (!prev)" or "corrupted size vs. prev_size" a random number of steps after a custom CUDA
  operator ran.

## References

- man 3 mallopt (M_CHECK_ACTION, MALLOC_CHECK_); glibc malloc/malloc.c, malloc_printerr
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.advice import has_torch, heap_check
from ftforensics.causes.blame import blame, blame_text, frame_name, line_text
from ftforensics.causes.ending import abort_texts, line_cite
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import places, plain_name
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism

KIND = Kind.OWN_FAULT
_ALLOCATOR = (
    "malloc", "free", "cfree", "calloc", "realloc", "__libc_malloc", "__libc_free", "__libc_calloc",
    "__libc_realloc", "_int_malloc", "_int_free", "_int_free_merge_chunk", "_int_realloc", "_int_memalign",
    "unlink_chunk", "malloc_consolidate", "tcache_get", "tcache_put",
)  # fmt: skip
_ACCESSES = (
    Mechanism.NULL_READ, Mechanism.NULL_WRITE, Mechanism.WILD_READ, Mechanism.WILD_WRITE, Mechanism.NON_CANONICAL,
    Mechanism.WRITE_TO_READONLY,
)  # fmt: skip


def check(crash: Crash) -> Iterator[Finding]:
    if crash.reading.mechanism is Mechanism.ABORT_HEAP:
        yield Finding(
            cause="heap-corruption",
            confidence=Confidence.LIKELY,
            summary=_summary(crash),
            supports=[*crash.reading.supports, *places(crash)],
            against=list(crash.reading.against),
            unknown=list(crash.reading.unknown),
            remedies=_remedies(crash),
        )
    elif crash.reading.mechanism in _ACCESSES and crash.native and plain_name(crash.native[0]) in _ALLOCATOR:
        yield Finding(
            cause="heap-corruption",
            confidence=Confidence.POSSIBLE,
            summary="The fault is inside the allocator, which a damaged heap would explain.",
            supports=[
                Cite("crash", "native.frames[0]", f"{plain_name(crash.native[0])} is part of the allocator"),
                *crash.reading.supports,
            ],
            against=list(crash.reading.against),
            unknown=list(crash.reading.unknown),
            remedies=_remedies(crash),
        )


def _summary(crash: Crash) -> str:
    message = crash.record.abort_message.text if crash.record.abort_message else None
    where = blame_text(crash)
    said = "The allocator found its heap damaged" + (f" when called from {where}" if where else "")
    return f"{said}: {message.strip()[:200]}." if message else f"{said}."


def _remedies(crash: Crash) -> list[Remedy]:
    blamed = blame(crash)
    remedies = []
    if blamed.border and blamed.python:
        remedies.append(
            Remedy(
                f"Check what {line_text(blamed.python)} frees or passes through {blamed.border}: freed twice, "
                "not from malloc, or written past its end"
            )
        )
    elif blamed.frame is not None:
        remedies.append(
            Remedy(
                f"Look at what {frame_name(blamed.frame)} frees and writes: freed twice, not from malloc, or written "
                "past its end. It may be innocent: the damage can be older"
            )
        )
    return [
        *remedies,
        heap_check(crash),
        Remedy(
            "Rebuild native extensions for the installed torch, and look for a second libstdc++ or allocator"
            if has_torch(crash)
            else "Look for a second libstdc++ or allocator in the process: freed by one, allocated by the other"
        ),
    ]


def check_death(death: Death) -> Iterator[Finding]:
    texts = abort_texts(death, "heap")
    if not texts:
        return
    said = texts[-1]
    message = " ".join((said.message or said.line.text).split())[:200]
    yield Finding(
        cause="heap-corruption",
        confidence=Confidence.LIKELY,
        summary=f"The allocator found its heap damaged: {message}.",
        supports=[line_cite(said.line), *death.ending],
        unknown=[Gap("crash", "who called the allocator", "ftforensics run -- COMMAND...")],
        remedies=[
            Remedy(
                "Run once with a checking allocator. If the failure moves, memory is overwritten or used after it was "
                "freed (with glibc 2.34 and later, preload libc_malloc_debug.so.0 too)",
                "MALLOC_CHECK_=3 MALLOC_PERTURB_=165 python ...",
                settles=True,
            ),
            Remedy("Rebuild native extensions for the installed torch, and look for a second libstdc++ or allocator"),
        ],
    )

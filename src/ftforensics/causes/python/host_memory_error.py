"""The machine refused the process more memory, and the process gave up.

## What it means

The program asked for memory and was told that there is none: the request was larger than what the machine can promise,
or a limit on the process's address space was reached. Unlike a kill for want of memory (SIGKILL) this is an answer, and
the program raised an exception or threw one.

## How it is told apart

`MemoryError` and what inherits from it (numpy's names the array's shape), torch's text "DefaultCPUAllocator: can't
allocate memory", an OSError "Cannot allocate memory" (fork, mmap), or C++'s `std::bad_alloc` that nobody caught. It is
as sure as it is that this ended the process. Linux promises more memory than there is as a rule, so that a single
request that fails is often absurdly large: a wrong shape, or a size read from a damaged file.

## What to do

1. Look whether the size makes sense. If not, look at the shapes; if it does, load in pieces, memory-map, or use less.
2. Look at the limits: `ulimit -v`, and `cat /proc/sys/vm/overcommit_memory` (2: nothing is promised that is not there).

## Seen in the field

- JingyunLiang/VRT#49: 117 GB wanted at once on a machine with 16 GB.
- open-edge-platform/anomalib#1094: all features of a data set in one tensor, 36 GB halfway through an epoch.

## References

- Python documentation, `MemoryError`; man 2 mmap (ENOMEM); Linux Documentation/mm/overcommit-accounting
- PyTorch source, c10/core/impl/alloc_cpu.cpp
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ftforensics.causes.native import uncaught_cxx_exception
from ftforensics.causes.registry import Kind
from ftforensics.causes.sizes import size_text
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About
from ftforensics.parsers.exception_text import exception_type

KIND = Kind.OWN_FAULT
REFINES = (REFINED, "uncaught-cxx-exception")
_ID = "host-memory-error"
_THROWN = ("std::bad_alloc", "std::bad_array_new_length")
_REMEDIES = (
    Remedy("Look whether the size that was asked for makes sense: a wrong shape or a damaged file asks for too much"),
    Remedy(
        "Look at what the machine and its limits allow",
        "free -g; ulimit -v; cat /proc/sys/vm/overcommit_memory",
        settles=True,
    ),
    Remedy("Load in pieces or memory-mapped, and keep fewer copies"),
)


def check(crash: Crash) -> Iterator[Finding]:
    exception = crash.record.cxx_exception
    if exception is None or not exception.type or exception_type(exception.type) not in _THROWN:
        return
    for one in uncaught_cxx_exception.check(crash):
        yield _thrown(one)


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.HOST_MEMORY)
    if found is not None:
        wanted = f" {size_text(found.subject.tried)}" if found.subject.tried else " more memory"
        yield finding(found, _ID, f"The machine refused the process{wanted}", remedies=_REMEDIES)
        return
    if death.texts and (death.texts[-1].type or "") in _THROWN:
        for one in uncaught_cxx_exception.check_death(death):
            yield _thrown(one)


def _thrown(one: Finding) -> Finding:
    summary = "The machine refused the process more memory: std::bad_alloc was thrown and not caught."
    return msgspec.structs.replace(one, cause=_ID, summary=summary, remedies=list(_REMEDIES))

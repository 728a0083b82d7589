"""An assertion in Python code did not hold.

## What it means

Somebody wrote down what must be true at that line, and it was not. The text, where there is one, is that person's; the
line is the place to look at.

## How it is told apart

By the exception's type, `AssertionError`. It is as sure as it is that the exception ended the process. A failed check
in a GPU kernel is `cuda-device-assert`, one of C code aborts the process.

## What to do

1. Read the line that is named, and print what it compares.
2. If it is a library's, it was called in a way that it does not support: its text or documentation says how.
3. Do not run with `python -O` to be rid of it: the next line counts on it.

## Seen in the field

- Sizes that must divide: "batch size must be divisible by ..." when a job is moved to another number of GPUs.
- "AssertionError: Torch not compiled with CUDA enabled": a build of torch for the CPU is installed.

## References

- Python documentation, "The assert statement"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.raised import place_text
from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.ASSERTION)
    if found is None:
        return
    where = place_text(found.own.place) if found.own.place is not None else "the line in the traceback"
    remedies = [Remedy(f"Look at what {where} asserts, and print both sides of it")]
    yield finding(found, "assertion-failed", "An assertion did not hold", remedies=remedies)

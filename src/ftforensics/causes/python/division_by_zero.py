"""A number was divided by zero in Python code.

## What it means

The divisor was zero: an empty data set or batch, a step count that was rounded down to nothing, a time of zero in a
rate. In Python that is an exception, not a signal; a division of integers in native code ends a process by SIGFPE.

## How it is told apart

By the exception's type, `ZeroDivisionError`; torch's error of the same name for tensors of integers; numpy's where
`errstate` makes it one. It is as sure as it is that the exception ended the process.

## What to do

1. Look at the divisor in the line that is named: where does it come from, and for which input is it zero?
2. A rank with fewer samples than the others may have none at all: look at the length of its part of the data.

## Seen in the field

- Averages over a validation set that is empty on the last rank.
- `steps_per_epoch = len(loader) // accumulation`, with fewer batches than accumulation steps.

## References

- Python documentation, `ZeroDivisionError`; NumPy documentation, `numpy.errstate`
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
    found = refinement(death, About.DIVISION)
    if found is None:
        return
    where = place_text(found.own.place) if found.own.place is not None else "the line in the traceback"
    remedies = [Remedy(f"Look at the divisor at {where}: an empty part of the data, or a count rounded down to zero")]
    yield finding(found, "division-by-zero", "A number was divided by zero", remedies=remedies)

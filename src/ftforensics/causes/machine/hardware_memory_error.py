"""The machine's memory is damaged.

## What it means

The hardware found a memory error that it could not correct, in a page that this process used. The kernel takes the page
out of service and ends the process with SIGBUS, or SIGKILL when it cannot do otherwise. The data is lost; the program
did nothing wrong.

## How it is told apart

The kernel writes a line "Memory failure" that names the process. It is proven when that is this process by its exact
pid and SIGBUS or SIGKILL ended it; likely when only the name and time fit. A line that names nobody, or a corrected
error, says only that the machine has faulty memory.

## What to do

1. Take the node out of service and have its memory tested.
2. Restart from a checkpoint that was written before: what was computed last may be damaged.

## Seen in the field

- One node of a cluster where jobs end with SIGBUS at random places, and nowhere else.

## References

- Linux Documentation/mm/hwpoison.rst, mm/memory-failure.c; man 2 sigaction (BUS_MCEERR_AR)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import SIGKILL, is_unseen, rank_of, signal_of, strength, weaker
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.kernel import MemoryFailure
from ftforensics.model.signals import signal_name

KIND = Kind.KILLER
_SIGBUS = 7


def check_death(death: Death) -> Iterator[Finding]:
    found = [(one, one.event) for one in death.kernel if isinstance(one.event, MemoryFailure)]
    if death.alive or not found or not (is_unseen(death) or signal_of(death) in (_SIGBUS, SIGKILL)):
        return
    match, event = min(found, key=lambda pair: rank_of(strength(pair[0].match.tie, pair[0].match.against)))
    confidence = strength(match.match.tie, match.match.against)
    if event.line.forgeable or event.pid is None:
        confidence = weaker(confidence, Confidence.POSSIBLE)
    against = list(match.match.against)
    number = signal_of(death)
    if event.signal is not None and number is not None and event.signal != signal_name(number):
        # A SIGBUS for a page that it had not yet touched: it may have handled that and lived on.
        against.append(
            Cite(match.cite.source, match.cite.locator, f"that sent {event.signal}, not {signal_name(number)}")
        )
        confidence = weaker(confidence, Confidence.POSSIBLE)
    yield Finding(
        cause="hardware-memory-error",
        confidence=confidence,
        summary="The machine's memory is damaged, in a page that this process used.",
        supports=[match.cite, *match.match.why, *death.ending],
        against=against,
        remedies=[
            Remedy("Take the node out of service and have its memory tested", "dmesg | grep -i 'memory failure'"),
            Remedy("Restart from a checkpoint of before: what was computed last may be damaged"),
        ],
    )

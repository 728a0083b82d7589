"""The kernel itself failed while it worked for this process.

## What it means

A bug in the kernel or a driver, often the GPU's or a file system's, made the kernel stop in the middle of a system call
of this process. It then ends that process, with SIGKILL or as if by a fault, and may leave locks behind: later
processes can hang. The program did nothing that should be able to cause this.

## How it is told apart

The kernel writes an Oops or BUG report with the process's pid and name. It is proven when that is this process by its
exact pid and its end fits; likely when only the name and time fit. A soft lockup or a hung task is reported too, but
ends nobody: possible at most.

## What to do

1. Restart the node before the next run: after an Oops its state is not to be trusted.
2. Update the driver or kernel that the report names, and keep the report for its maintainers.

## Seen in the field

- "BUG: unable to handle kernel paging request" in the GPU's driver, with `Comm: python`.

## References

- Linux Documentation/admin-guide/bug-hunting.rst; kernel/exit.c, make_task_dead
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import SIGKILL, is_unseen, rank_of, signal_of, strength, weaker
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.kernel import Oops

KIND = Kind.KILLER
_ENDING = ("oops", "bug")
_SIGNALS = (SIGKILL, 11, 7)


def check_death(death: Death) -> Iterator[Finding]:
    found = [(one, one.event) for one in death.kernel if isinstance(one.event, Oops)]
    if death.alive or not found or not (is_unseen(death) or signal_of(death) in _SIGNALS):
        return
    match, event = min(found, key=lambda pair: rank_of(strength(pair[0].match.tie, pair[0].match.against)))
    confidence = strength(match.match.tie, match.match.against)
    if event.line.forgeable or event.kind not in _ENDING:
        confidence = weaker(confidence, Confidence.POSSIBLE)
    module = f" in {event.module}" if event.module else f" in {event.function}" if event.function else ""
    yield Finding(
        cause="kernel-oops",
        confidence=confidence,
        summary=f"The kernel itself failed{module} while it worked for this process ({event.kind}).",
        supports=[match.cite, *match.match.why, *death.ending],
        against=match.match.against,
        remedies=[
            Remedy("Restart the node before the next run: after such a failure its state is not to be trusted"),
            Remedy(f"Update {event.module or 'the driver or kernel that the report names'}"),
        ],
    )

"""It was interrupted: Ctrl-C, or a SIGINT.

## What it means

SIGINT asks a program to stop what it does. Ctrl-C sends it to everything in the foreground of a terminal. Python turns
it into KeyboardInterrupt; where nobody catches that, the process ends by SIGINT, status -2, or 130 where a shell
reports it.

## How it is told apart

It is proven when the recorder noted that the kernel itself sent SIGINT, which it does for a terminal only, and the wait
status fits. It is likely when the wait status says SIGINT, or the last exception is a KeyboardInterrupt, or what
torchrun makes of a SIGINT that came to it. The status 130 alone is possible. Where another process sent it,
`killed-by-process` or `launcher-teardown` speaks.

## What to do

1. If nobody pressed Ctrl-C, look at who else sends SIGINT: notebooks ("interrupt kernel"), IDEs, some schedulers.
2. Save on KeyboardInterrupt where an interrupted run should go on later.

## Seen in the field

- A launcher in the foreground: Ctrl-C reaches every rank at once, and each prints its own traceback.

## References

- man 7 signal; man 3 termios (ISIG); Python documentation, `signal` ("default_int_handler")
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import (
    SI_KERNEL,
    is_own,
    last_signal,
    only_the_ring_says,
    senders,
    signal_of,
)
from ftforensics.causes.raised import raised_before_the_end, short_type, signal_answered
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

KIND = Kind.KILLER
_SIGINT = 2


def check_death(death: Death) -> Iterator[Finding]:
    raised = _raised(death)
    number = signal_of(death)
    answered = signal_answered(death)
    if not raised and answered is not None and answered[0] == _SIGINT:
        raised = answered[1]
    failed = number is None and death.code not in (None, 0) and raised
    if death.alive or not (number == _SIGINT or failed):
        return
    if number == _SIGINT and any(not is_own(death, one) for one in senders(death)):
        return
    noted = last_signal(death) if number == _SIGINT else None
    from_terminal = noted is not None and noted.signal.code == SI_KERNEL
    by_itself = noted is not None and noted.signal.sender is not None and noted.signal.sender.pid == death.pid
    if noted is not None and not from_terminal and not by_itself:
        return
    confidence = Confidence.LIKELY if death.signal == _SIGINT or raised else Confidence.POSSIBLE
    if from_terminal and death.signal == _SIGINT and not only_the_ring_says(death):
        confidence = Confidence.PROVEN
    supports = [noted.cite] if noted is not None else []
    supports += raised
    yield Finding(
        cause="interrupted",
        confidence=confidence,
        summary="Interrupted at the terminal (Ctrl-C)." if from_terminal else "Interrupted by SIGINT, as by Ctrl-C.",
        supports=[*supports, *death.ending],
        remedies=[Remedy("If nobody pressed Ctrl-C, look at who else interrupts: a notebook, an IDE, a scheduler")],
    )


def _raised(death: Death) -> list[Cite]:
    """KeyboardInterrupt, where that is what the process raised last, by its record or its log."""
    raised = raised_before_the_end(death)
    return raised.cites[-1:] if raised is not None and short_type(raised.raised) == "KeyboardInterrupt" else []

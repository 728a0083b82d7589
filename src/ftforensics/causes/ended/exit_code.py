"""The process ended itself with an exit status.

## What it means

It was no signal: the program, or a library in it, called `exit` with a number that is not zero. Python does so with 1
after an exception that nobody caught, with 2 for bad arguments, and with whatever `sys.exit` is given. This cause is
the plain statement of that fact.

## How it is told apart

The wait status, or a launcher, gives a number that stands for no signal. It is the residual: never proven to be a
reason, and the answer only when nothing more specific is at least likely. An exception that was in the output before is
quoted where nothing makes it at least likely that it was the reason: another status than 1, or a process that went on.
It is possible only where what was raised is what a program makes of a signal: the reason is who sent that.

## What to do

1. Read the last lines that this process wrote to stderr.
2. For an exit of 1 without a traceback, look for a library that calls `exit` itself, or for stderr that went elsewhere.

## Seen in the field

- "exitcode: 1" of torchrun with `traceback: To enable traceback see ...`: the traceback is further up in the log, or in
  the rank's own file under `--log-dir`.

## References

- man 3 exit; Python documentation, `sys.exit`
- PyTorch documentation, "Error Propagation" (the `record` decorator)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import decisions
from ftforensics.causes.ending import signal_of
from ftforensics.causes.raised import own_exception, said, signal_answered
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

KIND = Kind.RESIDUAL
# Decisions about a whole job. A task's failure leads to none of them; that its step is cancelled it does lead to.
_SCHEDULERS = ("time-limit", "deadline", "preempted", "requeued", "node-failed")


def check_death(death: Death) -> Iterator[Finding]:
    if death.alive or not death.code or signal_of(death) is not None:
        return
    own = own_exception(death)
    decided = [one.notice.cite for one in decisions(death) if one.above and one.notice.kind in _SCHEDULERS]
    sure = signal_answered(death) is None and not decided
    after = f" after {said(own.raised)}" if own is not None else ""
    yield Finding(
        cause="exit-code",
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=f"The process ended itself with exit status {death.code}{after}.",
        supports=[*death.ending, *(own.cites[-1:] if own is not None else [])],
        against=decided,
        remedies=[Remedy("Read the last lines that this process wrote to stderr")],
    )

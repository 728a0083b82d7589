"""A Python exception that nobody caught ended the process.

## What it means

Something in the program, or in a library that it called, raised an exception, and no `except` on the way out took it.
Python then prints the traceback and ends the process with status 1. The other ranks of the job find out when their
connection to this one closes, and print errors of their own, which name the network and not the reason.

## How it is told apart

The process's own exception record says which exception it was, and a wait status of 1, seen by a parent or a launcher,
goes with it: proven. From a log alone it is likely, where the status is 1. A traceback in a log may also be of an
exception that somebody caught and wrote down: where the status is not known or another one, or the process went on for
minutes, it is possible. So is one in whose last line the log ends. Before a signal or a crash an exception is context,
not the reason.

Of a chain ("direct cause", "during handling") the first failure is the one that is named: what a `finally`, a context
manager or a shutdown raised behind it is its consequence. A lookup that failed first (KeyError and the like) only led
to what was raised for it. What a data loader's worker raised and its rank handed on is the worker's, with its place.
An exception that only says that another process went away is `peer-lost`.

Where type and origin tell more, a more specific cause is the verdict (`cuda-out-of-memory`, `file-not-found`, ...).

## What to do

1. Read the line that is named: it is the innermost one of the program's own code.
2. If a worker raised it, run once with `num_workers=0`: the debugger then reaches the line.
3. If it came from torch's C++ code, `TORCH_SHOW_CPP_STACKTRACES=1` adds where.

## Seen in the field

- The commonest end of all. Under torchrun without `@record` its summary says `error_file: <N/A>` and the traceback is
  far above; with two nodes the log of the other one shows only "Connection closed by peer".
- "KeyError: Caught KeyError in DataLoader worker process 0.": the traceback of the worker is inside the message.

## References

- Python documentation, `sys.excepthook`; Language Reference, "The raise statement" (chaining)
- PyTorch documentation, "Error Propagation"; PyTorch source, torch/_utils.py (`ExceptionWrapper`)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.blame import is_library_code
from ftforensics.causes.ending import line_cite
from ftforensics.causes.raised import own_exception, place_text
from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import Uncaught, finding, uncaught
from ftforensics.model.basics import Gap
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
ORDER = 60
# A usage message and what a signal led to have causes of their own; as exceptions they say nothing.
_OTHERS = (About.ARGUMENTS, About.SIGNAL)


def check_death(death: Death) -> Iterator[Finding]:
    found = uncaught(death)
    if found is None:
        yield from _perhaps(death)
        return
    if found.subject.about in _OTHERS:
        return
    # Which part of the installation it was, other causes weigh; they are never proven, and say more than this.
    software = found.subject.about is About.SOFTWARE
    yield finding(
        found, "python-exception", confidence=Confidence.LIKELY if software else None, remedies=_remedies(found)
    )


def _perhaps(death: Death) -> Iterator[Finding]:
    """A traceback without a name, which this process or another one of the same status printed, or one that is cut."""
    unowned = [one for one in death.unowned if one.type != "SystemExit"]
    if not unowned or own_exception(death) is not None or death.code in (None, 0) or death.alive:
        return
    lines = [line_cite(one.line) for one in unowned[-3:]]
    if unowned[-1].cut:
        yield Finding(
            cause="python-exception",
            confidence=Confidence.POSSIBLE,
            summary=f"It may have raised an exception in whose line the log ends: {lines[-1].text[:300]}.",
            supports=[lines[-1], *death.ending],
            unknown=[Gap("launcher", "how the line goes on: the log ends within it")],
        )
        return
    yield Finding(
        cause="python-exception",
        confidence=Confidence.POSSIBLE,
        summary=f"It may have raised an exception that the log does not say whose it is: {lines[-1].text[:300]}.",
        supports=[*lines, *death.ending],
        unknown=[Gap("launcher", "which process raised it", "torchrun --log-dir logs --tee 3 ...")],
        remedies=[
            Remedy("Give each rank's lines its name, or a file of its own", "torchrun --log-dir logs --tee 3 ...")
        ],
    )


def _remedies(found: Uncaught) -> Iterator[Remedy]:
    own = found.own
    if own.place is not None and not is_library_code(own.place.file or ""):
        yield Remedy(f"Look at {place_text(own.place)}: the innermost line of the program's own code")
    elif own.place is not None:
        yield Remedy(f"Look at what was passed to {place_text(own.place)}; the traceback tells who called it")
    else:
        yield Remedy("Read the traceback from its last line upwards, to the first line of the program's own code")
    if own.of_worker:
        yield Remedy("Run once without worker processes, where a debugger reaches the line: DataLoader(num_workers=0)")
    if len(found.failure.frames) > 1 and "/torch/" in (found.failure.frames[-1].file or ""):
        yield Remedy("Run again with the place in torch's own code", "TORCH_SHOW_CPP_STACKTRACES=1 python ...")

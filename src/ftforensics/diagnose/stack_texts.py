"""Which death a line about the software stack belongs to.

A line names a process by its label's rank, seldom by a pid; else it is of the only process that can have written it.
Nothing is given to a process that ended as another one's consequence, unless it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.causes.ending import SIGABRT, SIGKILL, signal_of
from ftforensics.model.death import Death
from ftforensics.model.launcher import ExceptionSeen, LauncherLog, StackText

MOST = 20  # of one death; the first ones say what began it
# An uncaught Python exception ends a process by a status. A signal of the hardware or SIGKILL came from elsewhere, so
# that somebody had caught the exception.
_NOT_BY_EXCEPTION = (4, 5, 7, 8, SIGKILL, 11, 31)
# Who prints these ends the process by abort() (torch's watchdog, cuDNN's loader, LLVM's and Intel's OpenMP).
_ABORTING = ("nccl-watchdog", "cudnn-parts", "openmp-twice")
# Of an exception that nobody catches (Doc/library/sys.rst, sys.excepthook).
_STATUS = 1
# Python writes a traceback at once, and what waits in the buffer of its standard output (8 KiB) after it.
_STILL_TO_COME = 1000  # lines


def with_stack_texts(deaths: Sequence[Death], logs: Sequence[LauncherLog]) -> list[Death]:
    """The deaths with their texts. `role` must be known: see `diagnose.roles.with_roles`."""
    found: dict[int, list[StackText]] = {}
    for log in logs:
        raised = [event for event in log.events if isinstance(event, ExceptionSeen)]
        several = sum(death.role != "collateral" for death in deaths) > 1
        texts = [
            msgspec.structs.replace(
                event,
                line=msgspec.structs.replace(event.line, path=event.line.path or log.path),
                form="warning" if _was_caught(event, raised, several) or _goes_on(event, log) else event.form,
            )
            for event in log.events
            if isinstance(event, StackText)
        ]
        for text in texts:
            for index in _owners(text, deaths, texts):
                found.setdefault(index, []).append(_of_status(text, deaths[index]))
    return [
        msgspec.structs.replace(death, stack_texts=list(_each_once(found[index]))[:MOST]) if index in found else death
        for index, death in enumerate(deaths)
    ]


def _was_caught(text: StackText, raised: Sequence[ExceptionSeen], several: bool) -> bool:
    """Did its process go on and raise something else later? Then it counts as a warning. Of lines without a name nobody
    can say that where several processes may have written them."""
    if text.form != "exception" or (text.rank is None and several):
        return False
    own = [one for one in raised if one.rank == text.rank and not one.ignored and not one.peer_lost]
    number = text.line.number
    before = next((one for one in own if one.line.number == number), None)
    last = before
    for later in (one for one in own if one.line.number > number):
        # Who handles an import that failed does without it, as a rule, and fails at that.
        instead = later.handling and last is before and before is not None and _is_import(before)
        last = later
        if (later.chained and not instead) or (
            before is not None and (later.type, later.message) == (before.type, before.message)
        ):
            continue  # the same failure, told on
        return True
    return False


def _is_import(raised: ExceptionSeen) -> bool:
    return raised.type in ("ImportError", "ModuleNotFoundError", "OSError")


def _goes_on(text: StackText, log: LauncherLog) -> bool:
    """Does the log go on for long behind it, with no failure and nobody's end in between?"""
    if text.form not in ("exception", "line"):
        return False
    later = (one.line.number for one in log.events if one.line.number > text.line.number)
    return min(later, default=log.lines) - text.line.number > _STILL_TO_COME


def _of_status(text: StackText, death: Death) -> StackText:
    """Who ends with a status of his own had caught the exception, or never raised it."""
    if text.form == "exception" and signal_of(death) is None and death.code not in (None, _STATUS):
        return msgspec.structs.replace(text, form="warning")
    return text


def _owners(text: StackText, deaths: Sequence[Death], texts: Sequence[StackText]) -> list[int]:
    able = [index for index, death in enumerate(deaths) if _can_be_of(text, death)]
    if text.pid is not None:
        return [index for index in able if text.pid in (deaths[index].pid, *deaths[index].host_pids)]
    if text.rank is not None and any(death.rank is not None for death in deaths):
        return [index for index in able if deaths[index].rank == text.rank and not deaths[index].worker]
    able = [index for index in able if deaths[index].role != "collateral"]
    ended_so = [index for index in able if _ends_so(text, deaths[index])]
    able = ended_so or able
    if len(able) <= 1:
        return able
    # Every rank printed it, and none with its name.
    if sum(_same(text, other) and other.rank is None for other in texts) >= len(able):
        return able
    first = [index for index in able if deaths[index].first]
    return first if len(first) == 1 else []


def _can_be_of(text: StackText, death: Death) -> bool:
    if death.alive or death.from_kernel:
        return False
    number = signal_of(death)
    if text.form == "exception":
        return number not in _NOT_BY_EXCEPTION
    if text.form == "what":
        return number == SIGABRT or (number is None and death.code is None)
    return True


def _ends_so(text: StackText, death: Death) -> bool:
    number = signal_of(death)
    if text.kind in _ABORTING and text.form == "line" and number == SIGABRT:
        return True
    return text.form == "exception" and number is None and death.code not in (None, 0)


def _same(one: StackText, other: StackText) -> bool:
    return _what(one) == _what(other)


def _what(text: StackText) -> tuple[object, ...]:
    return (
        text.kind,
        text.code,
        text.version,
        text.library,
        text.symbol,
        text.file,
        text.wanted,
        text.found,
        text.form,
    )


def _each_once(texts: Sequence[StackText]) -> Iterator[StackText]:
    """torchrun prints a rank's traceback again in its summary, a worker's is quoted by its parent."""
    seen = set()
    for text in texts:
        what = _what(text)
        if what not in seen:
            seen.add(what)
            yield text

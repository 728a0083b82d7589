"""Which death a line about the software stack belongs to.

A line names a process by its label's rank, seldom by a pid; else it is of the only process that can have written it.
Nothing is given to a process that ended as another one's consequence, unless it is named.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

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
    owners: _Owners | None = None
    for log in logs:
        if not any(isinstance(event, StackText) for event in log.events):
            continue
        owners = owners if owners is not None else _Owners(deaths)
        course = _Course(log, owners.several)
        texts = [
            msgspec.structs.replace(
                event,
                line=msgspec.structs.replace(event.line, path=event.line.path or log.path),
                form="warning" if course.was_caught(event) or course.goes_on(event) else event.form,
            )
            for event in log.events
            if isinstance(event, StackText)
        ]
        nameless = Counter(_what(text) for text in texts if text.rank is None)
        for text in texts:
            for index in owners.of(text, nameless[_what(text)]):
                found.setdefault(index, []).append(_of_status(text, deaths[index]))
    return [
        msgspec.structs.replace(death, stack_texts=list(_each_once(found[index]))[:MOST]) if index in found else death
        for index, death in enumerate(deaths)
    ]


class _Course:
    """How a log goes on behind a text. several: more than one process may have written what names nobody."""

    def __init__(self, log: LauncherLog, several: bool) -> None:
        self._several = several
        self._lines = log.lines
        self._numbers = sorted({event.line.number for event in log.events})
        self._raised: dict[int | None, list[ExceptionSeen]] = {}
        for event in log.events:
            if isinstance(event, ExceptionSeen) and not event.ignored and not event.peer_lost:
                self._raised.setdefault(event.rank, []).append(event)
        for raised in self._raised.values():
            raised.sort(key=lambda event: event.line.number)

    def was_caught(self, text: StackText) -> bool:
        """Did its process go on and raise something else later? Then it counts as a warning. Of lines without a name
        nobody can say that where several processes may have written them."""
        if text.form != "exception" or (text.rank is None and self._several):
            return False
        own = self._raised.get(text.rank, [])
        number = text.line.number
        first = bisect_left(own, number, key=lambda event: event.line.number)
        before = own[first] if first < len(own) and own[first].line.number == number else None
        last = before
        for later in own[first : first + _STILL_TO_COME]:
            if later.line.number == number:
                continue
            # Who handles an import that failed does without it, as a rule, and fails at that.
            instead = later.handling and last is before and before is not None and _is_import(before)
            last = later
            if (later.chained and not instead) or (
                before is not None and (later.type, later.message) == (before.type, before.message)
            ):
                continue  # the same failure, told on
            return True
        return False

    def goes_on(self, text: StackText) -> bool:
        """Does the log go on for long behind it, with no failure and nobody's end in between?"""
        if text.form not in ("exception", "line"):
            return False
        place = bisect_right(self._numbers, text.line.number)
        later = self._numbers[place] if place < len(self._numbers) else self._lines
        return later - text.line.number > _STILL_TO_COME


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


class _Owners:
    """The deaths that a text can be of, by the way in which it ends a process."""

    def __init__(self, deaths: Sequence[Death]) -> None:
        self._deaths = deaths
        self.several = sum(death.role != "collateral" for death in deaths) > 1
        self._with_ranks = any(death.rank is not None for death in deaths)
        self._by_pid: dict[int, list[int]] = {}
        self._by_rank: dict[int, list[int]] = {}
        for index, death in enumerate(deaths):
            for pid in dict.fromkeys([death.pid, *death.host_pids]):
                if pid is not None:
                    self._by_pid.setdefault(pid, []).append(index)
            if death.rank is not None and not death.worker:
                self._by_rank.setdefault(death.rank, []).append(index)
        self._nameless: dict[tuple[str | None, bool], list[int]] = {}

    def of(self, text: StackText, same: int) -> list[int]:
        """same: how many texts say this without a name."""
        if text.pid is not None:
            return self._able(text, self._by_pid.get(text.pid, ()))
        if text.rank is not None and self._with_ranks:
            return self._able(text, self._by_rank.get(text.rank, ()))
        able = self._of_nobody(text)
        # Every rank printed it, and none with its name.
        if len(able) <= 1 or same >= len(able):
            return able
        first = [index for index in able if self._deaths[index].first]
        return first if len(first) == 1 else []

    def _of_nobody(self, text: StackText) -> list[int]:
        key = (text.form, text.kind in _ABORTING)
        if key not in self._nameless:
            able = self._able(text, range(len(self._deaths)))
            able = [index for index in able if self._deaths[index].role != "collateral"]
            self._nameless[key] = [index for index in able if _ends_so(text, self._deaths[index])] or able
        return self._nameless[key]

    def _able(self, text: StackText, indexes: Iterable[int]) -> list[int]:
        return [index for index in indexes if _can_be_of(text, self._deaths[index])]


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

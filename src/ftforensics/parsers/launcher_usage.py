"""A program that did not understand its command line: the usage message of argparse, and click's.

    usage: train.py [-h] [--lr LR]
    train.py: error: unrecognized arguments: --local-rank=0

Both leave by SystemExit with status 2, which prints no traceback; so the event is the exception without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftforensics.model.launcher import ExceptionSeen, LauncherEvent
from ftforensics.parsers.launcher_line import JobLine

# argparse.py, ArgumentParser.error: "%(prog)s: error: %(message)s"; prog may hold the names of subcommands.
_ARGPARSE = re.compile(r"(?P<prog>[^\s:]{1,200})(?: [\w.-]{1,60}){0,4}: error: (?P<said>\S.{0,1000})$")
_USAGE = re.compile(r"usage: (?P<prog>[^\s:]{1,200})(?= |$)", re.IGNORECASE)
# click/exceptions.py, UsageError.show
_CLICK = re.compile(r"Error: (?P<said>\S.{0,1000})$")
_WITHIN = 400  # lines: a message with many options is long, and ranks print theirs at once
_MOST_OPEN = 64  # labels whose usage message has begun


class UsageReader:
    anchors = ("usage: ", "Usage: ", ": error: ")

    def __init__(self) -> None:
        self._begun: dict[str, tuple[str, int, bool]] = {}  # by label: the program, the line, whether click prints it

    @property
    def open(self) -> bool:
        return any(click for _, _, click in self._begun.values())

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        self._forget(line.number)
        text = line.text[:4096].rstrip()
        usage = _USAGE.match(text)
        if usage:
            if len(self._begun) >= _MOST_OPEN:
                self._begun.pop(next(iter(self._begun)))
            self._begun.pop(line.label, None)
            self._begun[line.label] = (usage["prog"], line.number, text.startswith("Usage"))
            return
        begun = self._begun.get(line.label)
        if begun is None:
            return
        prog, _, click = begun
        found = (_CLICK if click else _ARGPARSE).match(text)
        if found is None or (not click and found["prog"] != prog):
            return
        if click:
            # argparse's stays: ranks without labels print theirs in turns.
            del self._begun[line.label]
        yield ExceptionSeen(line.cited(), "SystemExit", found["said"].strip(), line.rank)

    def _forget(self, number: int) -> None:
        while self._begun:
            oldest = next(iter(self._begun))
            if number - self._begun[oldest][1] <= _WITHIN:
                return
            del self._begun[oldest]

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())

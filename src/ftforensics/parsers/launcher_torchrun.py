"""torchrun (torch.distributed.elastic): its log lines of three generations and the summary of ChildFailedError.

1.9 to 2.1  ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: ...
2.1, 2.2    [2024-10-28 06:14:37,244] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: ...
2.3 on      E0517 08:24:03.805000 1234 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: ...

The words behind the prefix are the same in all of them, and a job's own logging may set another one, so of the prefix
only this counts: it holds no quotation mark and no exception's name, or the words are somebody's who quotes them. Its
times have no zone, so none becomes a Moment. The agent polls: they say when it *noticed*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ftforensics.model.launcher import LauncherEvent, ProcessDied, SignalledBy
from ftforensics.parsers.launcher_line import JobLine, local_time, signal_and_code
from ftforensics.parsers.signal_words import signal_of

_FAILED = re.compile(
    r"failed \(exitcode: (-?\d{1,5})\) local_rank: (\d{1,6}) \(pid: (\d{1,10})\)"
    r" of (?:binary: (?P<program>\S.*)|fn: (?P<function>\S+))"
)
# "closing signal" when a binary is run, "via signal" when a function is. With the workers' start method "spawn" the
# same words come from torch.multiprocessing; `launcher_other` has those.
_CLOSING = re.compile(r"(?:Sending process (\d{1,10}) closing signal|Closing process (\d{1,10}) via signal) (\w+)")
# str() of a signal is "Signals.SIGTERM" before Python 3.11 and "15" from it on.
_FORCED = re.compile(
    r"Unable to shutdown process (\d{1,10}) via (\S{1,40}), forcefully exiting via (?:Signals\.)?(SIG[A-Z0-9]+|\d+)"
)
_QUOTING = re.compile(r"['\"`]|(?:Error|Exception|Warning)\b: ")
# One block of the summary; 1.9 wrote "exitcode: 1" where later versions align the colons. The margin is what something
# else put before every line of it.
_HEADING = re.compile(
    r"^(?P<margin>.{0,60}?)(?:Failures:|Other Failures:|Root Cause(?: \(first observed failure\))?:)\s*$"
)
_FIELD = re.compile(r"^(?P<margin>.{0,60}?)  (?P<name>time|host|rank|exitcode) *: (?P<value>.*)$")
_EXIT = re.compile(r"(-?\d{1,5}) \(pid: (\d{1,10})\)")
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,6})\)")
_SUMMARY_LINES = 20_000  # tracebacks of hundreds of ranks fit


@dataclass
class _Block:
    """The fields so far of one entry in the summary."""

    time: str = ""
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    margin: str | None = None  # of a block that began above what is there of the log


class TorchrunReader:
    anchors = (
        "failed (exitcode: ",
        " closing signal ",
        "Closing process ",
        "forcefully exiting via ",
        "Failures:",
        "Root Cause",
        "(local_rank: ",
        "exitcode",
    )

    def __init__(self) -> None:
        self._summary_until = 0  # line number; 0: outside
        self._first = False
        self._margin = ""
        self._block = _Block()

    @property
    def open(self) -> bool:
        return self._summary_until > 0

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        if self._summary_until and line.number > self._summary_until:
            self._close()
        text = line.text[:4096]
        if "(exitcode: " in text:
            yield from _failed(line, text)
        elif "process " in text:
            yield from _signalled(line, text)
        yield from self._summary(line, text)

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())

    def _close(self) -> None:
        self._summary_until, self._first, self._block = 0, False, _Block()

    def _summary(self, line: JobLine, text: str) -> Iterator[LauncherEvent]:
        heading = _HEADING.match(text)
        if heading:
            self._summary_until = line.number + _SUMMARY_LINES
            self._first = "Root Cause" in text
            self._margin, self._block = heading["margin"], _Block()
            return
        if self.open and self._first:
            bare = text.strip()
            if len(bare) >= 10 and not bare.strip("=*"):
                self._close()
                return
        field = _FIELD.match(text)
        if field is None:
            return
        name, value, margin = field["name"], field["value"].strip(), field["margin"]
        if self.open and margin != self._margin:
            return
        if name == "exitcode":
            found = _EXIT.match(value)
            if found and (self.open or (self._block.rank is not None and self._block.margin == margin)):
                yield self._died(line, int(found[1]), int(found[2]), value)
            self._block = _Block()
        elif name == "rank":
            ranks = _RANK.match(value)
            if ranks:
                self._block.rank, self._block.local_rank = int(ranks[1]), int(ranks[2])
                self._block.margin = margin
        elif not self.open:
            return
        elif name == "time":
            self._block = _Block(time=value[:40])
        else:
            self._block.host = value[:255] or None

    def _died(self, line: JobLine, exitcode: int, pid: int, value: str) -> ProcessDied:
        block = self._block
        said = [f"time: {block.time}" if block.time else "", f"host: {block.host}" if block.host else ""]
        if block.rank is not None:
            said.append(f"rank: {block.rank} (local_rank: {block.local_rank})")
        said.append(f"exitcode: {value}")
        signal, code = signal_and_code(exitcode)
        return ProcessDied(
            line=line.cited("  ".join(part for part in said if part), local_time(block.time)),
            launcher="torchrun",
            pid=pid or None,
            rank=block.rank,
            local_rank=block.local_rank,
            signal=signal,
            code=code,
            first=self._first,
            host=block.host,
        )


def _failed(line: JobLine, text: str) -> Iterator[LauncherEvent]:
    found = _FAILED.search(text)
    if found is None or _QUOTING.search(text, 0, found.start()):
        return
    signal, code = signal_and_code(int(found[1]))
    program = found["program"]
    yield ProcessDied(
        line=line.cited(),
        launcher="torchrun",
        pid=int(found[3]) or None,
        local_rank=int(found[2]),
        signal=signal,
        code=code,
        first=True,  # the agent names the failure with the earliest stamp of whole seconds
        program=program.strip()[:1000] if program else None,
        command=found["function"],
    )


def _signalled(line: JobLine, text: str) -> Iterator[LauncherEvent]:
    closing = _CLOSING.search(text)
    if closing and not _QUOTING.search(text, 0, closing.start()):
        pid = int(closing[1] or closing[2])
        yield SignalledBy(line.cited(), "torchrun", pid, signal_of(closing[3]))
        return
    forced = _FORCED.search(text)
    if forced and not _QUOTING.search(text, 0, forced.start()):
        yield SignalledBy(line.cited(), "torchrun", int(forced[1]), signal_of(forced[3]))

"""torch's DataLoader about its worker processes (torch/utils/data, aten DataLoader.cpp).

The advice that follows (shared memory, num_workers=0) is printed whatever the cause and is no evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftforensics.model.launcher import LauncherEvent, ProcessDied
from ftforensics.parsers.launcher_line import JobLine
from ftforensics.parsers.signal_words import signal_of

# strsignal's word is in the language of LC_MESSAGES, followed by a full stop.
_KILLED = re.compile(r"DataLoader worker \(pid (\d{1,10})\) is killed by signal: ([^.]{1,80})")
_EXITED = re.compile(r"DataLoader worker \(pid (\d{1,10})\) exited unexpectedly with exit code (\d{1,3})")
_GONE = re.compile(r"DataLoader worker \(pid\(s\) ([\d, ]{1,1000})\) exited unexpectedly")
_MOST_WORKERS = 64


class DataLoaderReader:
    anchors = ("DataLoader worker (pid",)
    open = False

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        text = line.text[:4096]
        killed = _KILLED.search(text)
        if killed:
            yield _died(line, int(killed[1]), signal=signal_of(killed[2]))
            return
        exited = _EXITED.search(text)
        if exited:
            yield _died(line, int(exited[1]), code=int(exited[2]))
            return
        for pid in workers_of(text)[:_MOST_WORKERS]:
            yield _died(line, pid)

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())


def workers_of(text: str) -> list[int]:
    """The pids that a DataLoader's report names."""
    one = _KILLED.search(text) or _EXITED.search(text)
    if one:
        return [int(one[1])]
    several = _GONE.search(text)
    return [int(pid) for pid in re.findall(r"\d{1,10}", several[1])] if several else []


def _died(line: JobLine, pid: int, signal: int | None = None, code: int | None = None) -> ProcessDied:
    return ProcessDied(line.cited(), "dataloader", pid=pid, signal=signal, code=code, worker=True)

"""pystack's `remote --native-all` output (read from version 1.7.2) and what it says when it is refused.

It is meant for people: a header a thread, a line a frame, outermost first, and under a Python frame the source line,
which is dropped here: source text can hold secrets.
"""

from __future__ import annotations

import re

from ftforensics.model.helper_report import HelperFrame, HelperThread

_HEADER = re.compile(r"^Traceback for thread (\d+)(?: \((.*?)\))? .*\(most recent call last\):$")
_FRAME = re.compile(r'^    \((C|Python)\) File "(.*?)", line (\d+), in (.*)$')
_LIBRARY = re.compile(r"^(.*?)(?: \(inlined\))? \(([^()]*)\)$")


def parse(text: str) -> list[HelperThread]:
    """Threads in pystack's order, frames turned innermost first. Raises ValueError when there is no thread at all."""
    threads: list[HelperThread] = []
    frames: list[HelperFrame] = []
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            frames = []
            threads.append(HelperThread(tid=int(header[1]), name=header[2] or None, frames=frames))
            continue
        frame = _FRAME.match(line)
        if frame and threads:
            frames.insert(0, _frame(frame[1], frame[2], int(frame[3]), frame[4]))
    if not threads:
        raise ValueError("not pystack's output: no thread in it")
    return threads


def _frame(kind: str, file: str, line: int, rest: str) -> HelperFrame:
    if kind == "Python":
        return HelperFrame(function=rest, file=file, line=line or None)
    parts = _LIBRARY.match(rest)
    function, library = (parts[1], parts[2]) if parts else (rest, None)
    has_line = line > 0 and file != "???"
    return HelperFrame(
        function=None if function == "???" else function,
        file=file if has_line else None,
        line=line if has_line else None,
        native=True,
        library=library,
    )


def refused(stderr: bytes) -> bool:
    """Did pystack say that it may not trace the process?"""
    said = stderr.lower()
    return b"operation not permitted" in said or b"cannot be traced" in said or b"permission denied" in said

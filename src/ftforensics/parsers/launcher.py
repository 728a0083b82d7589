"""A job's output, from whatever launcher: who died of what, who was ended by whom, which exceptions were seen.

Every wording has its own reader (`launcher_torchrun`, ...). A block of lines without any reader's anchor is counted
and passed by, which makes a gigabyte of progress bars bearable. Never raises for what a file holds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ftforensics.model.launcher import LauncherEvent, LauncherLog
from ftforensics.parsers.launcher_dataloader import DataLoaderReader
from ftforensics.parsers.launcher_deepspeed import DeepspeedReader
from ftforensics.parsers.launcher_line import LONGEST, LineReader, job_line
from ftforensics.parsers.launcher_python import PythonReader
from ftforensics.parsers.launcher_torchrun import TorchrunReader

_PIECE = 1 << 20
_ENDS = re.compile(rb"[\r\n]")
# Of a log with more events than this the first and the last are kept: the first failure and the end of the story.
_FIRST_EVENTS = 4000
_LAST_EVENTS = 8000


def read_launcher_log(
    data: Iterable[bytes] | bytes, path: str | None = None, progress: Callable[[int], None] | None = None
) -> LauncherLog:
    """data: the log, whole or in pieces of any size. progress: called with the bytes read so far.

    Memory is bounded, whatever the size. `cut` of the result: events beyond the bound were left out.
    """
    reading = _Reading()
    seen = 0
    for block in _blocks(data):
        reading.block(block)
        seen += len(block)
        if progress is not None:
            progress(seen)
    return reading.finished(path)


class _Reading:
    def __init__(self) -> None:
        self._readers: list[LineReader] = [TorchrunReader(), DeepspeedReader(), DataLoaderReader(), PythonReader()]
        words = {anchor.encode() for reader in self._readers for anchor in reader.anchors}
        self._anchors = tuple(sorted(words))
        self._first: list[LauncherEvent] = []
        self._last: deque[LauncherEvent] = deque(maxlen=_LAST_EVENTS)
        self._left_out = 0
        self._launchers: list[str] = []
        self._newlines = 0
        self._partial = False

    def block(self, block: bytes) -> None:
        """Whole lines (each but the file's last with its end)."""
        # Colours may stand within an anchor, so such a block is read line by line.
        if b"\x1b" in block or self._open() or any(anchor in block for anchor in self._anchors):
            self._lines(block)
        else:
            self._newlines += block.count(b"\n")
        self._partial = not block.endswith(b"\n")

    def _lines(self, block: bytes) -> None:
        start = 0
        number = self._newlines + 1
        for end in _ENDS.finditer(block):
            self._line(block[start : min(end.start(), start + LONGEST)], number)
            start = end.end()
            if end.group() == b"\n":
                number += 1
        if start < len(block):
            self._line(block[start : start + LONGEST], number)
        self._newlines = number - 1

    def _line(self, raw: bytes, number: int) -> None:
        plain = b"\x1b" not in raw
        anchored = not plain or any(anchor in raw for anchor in self._anchors)
        readers = self._readers if anchored else [reader for reader in self._readers if reader.open]
        if not readers:
            return
        line = job_line(raw, number)
        if not plain and not any(anchor in line.text for reader in self._readers for anchor in reader.anchors):
            readers = [reader for reader in self._readers if reader.open]
        for reader in readers:
            for event in reader.read(line):
                self._keep(event)

    def _open(self) -> bool:
        return any(reader.open for reader in self._readers)

    def _keep(self, event: LauncherEvent) -> None:
        launcher = getattr(event, "launcher", None)
        if launcher is not None and launcher not in self._launchers:
            self._launchers.append(launcher)
        if len(self._first) < _FIRST_EVENTS:
            self._first.append(event)
            return
        self._left_out += len(self._last) == _LAST_EVENTS
        self._last.append(event)

    def finished(self, path: str | None) -> LauncherLog:
        for reader in self._readers:
            for event in reader.end():
                self._keep(event)
        events = sorted([*self._first, *self._last], key=lambda event: event.line.number)
        return LauncherLog(
            path=path,
            launchers=self._launchers,
            lines=self._newlines + self._partial,
            events=events,
            cut=self._left_out > 0,
        )


def _blocks(data: Iterable[bytes] | bytes) -> Iterator[bytes]:
    """The same bytes cut behind line ends. Of a line longer than LONGEST the rest is dropped, so nothing grows."""
    waiting = bytearray()
    for piece in _pieces(data):
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        if end == 0:
            if len(waiting) < LONGEST:
                waiting += piece[: LONGEST - len(waiting)]
            continue
        # What had been dropped belonged to the line that the first end in this piece closes.
        first = next(iter(_ENDS.finditer(piece))).start()
        head = piece[: min(first, max(0, LONGEST - len(waiting)))]
        yield bytes(waiting) + head + piece[first:end]
        waiting = bytearray(piece[end : end + LONGEST])
    if waiting:
        yield bytes(waiting)


def _pieces(data: Iterable[bytes] | bytes) -> Iterator[bytes]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        for start in range(0, len(data), _PIECE):
            yield bytes(data[start : start + _PIECE])
        return
    for piece in data:
        yield from (_pieces(piece) if len(piece) > _PIECE else [piece])


# --- what kind of file ------------------------------------------------------------------------------------------------

# dmesg's and /dev/kmsg's own prefixes, syslog's and journalctl's tag of kernel lines.
_KERNEL_LINE = re.compile(
    rb"(?:<\d{1,3}>)?\[ *\d{1,9}\.\d{3,9}\] |\d{1,3},\d{1,12},\d{1,15},[-c+]|kern *:\w+ *: |"
    rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} kernel: |\d{4}-\d\d-\d\dT\S{8,30} \S{1,255} kernel: |"
    rb"\[[^\]]{3,24} \d\d:\d\d:\d\d \d{4}\] "
)
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\b\0"))


def looks_like_launcher_log(head: bytes) -> bool:
    """Is this the beginning of a job's plain text output? Not for kernel logs, binary files and JSON documents."""
    text = head[:LONGEST].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        return False
    if text[:1] == b"{" or re.match(rb"\[\s*[\[{\"]", text):
        return text.startswith(b'{"log":')
    strange = len(text) - len(text.translate(None, _CONTROLS))
    if strange * 50 > len(text) or text.count(b"\0") * 20 > len(text):
        return False
    if b"\0" in text[:4] or text.startswith((b"\x7fELF", b"\x1f\x8b", b"PK\x03\x04", b"%PDF-", b"\x89PNG")):
        return False
    if sum(byte >= 0x80 for byte in text) and not _is_utf8(text):
        return False
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    return sum(_KERNEL_LINE.match(line) is not None for line in lines) * 2 < len(lines)


def _is_utf8(text: bytes) -> bool:
    """Up to a torn character at either end and a few stray bytes."""
    return text.decode("utf-8", "replace").count("\ufffd") * 50 <= len(text)

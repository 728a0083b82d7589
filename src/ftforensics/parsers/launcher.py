"""A job's output, from whatever launcher: who died of what, who was ended by whom, which exceptions were seen.

Every wording has its own reader (`launcher_torchrun`, ...), which gets the lines that hold one of its anchors. A block
of lines without any is counted and passed by, which makes a gigabyte of progress bars bearable. Never raises for what a
file holds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import accumulate

from msgspec.structs import replace

from ftforensics.model.launcher import (
    AttemptBegan,
    ExceptionSeen,
    LauncherEvent,
    LauncherLog,
    NativeText,
    ProcessDied,
)
from ftforensics.parsers.launcher_attempts import AttemptReader
from ftforensics.parsers.launcher_dataloader import DataLoaderReader
from ftforensics.parsers.launcher_deepspeed import DeepspeedReader
from ftforensics.parsers.launcher_line import LONGEST, LineReader, job_lines, looks_like_json_lines, without_colours
from ftforensics.parsers.launcher_native import NativeReader
from ftforensics.parsers.launcher_other import (
    ChildProcessReader,
    LightningReader,
    MpiReader,
    RayReader,
    ShellReader,
    SpawnReader,
    SrunReader,
    SubprocessReader,
)
from ftforensics.parsers.launcher_python import TracebackReader
from ftforensics.parsers.launcher_secrets import without_secrets
from ftforensics.parsers.launcher_stack import StackReader
from ftforensics.parsers.launcher_torchrun import TorchrunReader
from ftforensics.parsers.launcher_usage import UsageReader
from ftforensics.parsers.stack_message import in_exception, in_native

_PIECE = 1 << 20
_ENDS = re.compile(rb"[\r\n]")
_FOLD = bytes.maketrans(b"0123456789", b"0" * 10)
# Of a log with more events than this the first and the last are kept: the first failure and the end of the story.
_FIRST_EVENTS = 4000
_LAST_EVENTS = 8000
_MOST_ATTEMPTS = 2000
_LONGEST_KNOWN = 1000  # bytes of a shape that is remembered


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


def readers() -> list[LineReader]:
    """A new one of each wording."""
    return [
        TorchrunReader(),
        DeepspeedReader(),
        DataLoaderReader(),
        SpawnReader(),
        LightningReader(),
        MpiReader(),
        RayReader(),
        SrunReader(),
        ShellReader(),
        SubprocessReader(),
        ChildProcessReader(),
        TracebackReader(),
        NativeReader(),
        StackReader(),
        UsageReader(),
    ]


class _Reading:
    def __init__(self) -> None:
        self._attempts = AttemptReader()
        self._readers = [*readers(), self._attempts]  # the last: it hears of what the others read
        self._opened = 0  # the readers within something that spans lines, a bit each
        self._chosen: dict[int, list[tuple[int, LineReader]]] = {}  # by such bits
        self._shapes = _shapes(tuple(reader.anchors for reader in self._readers))
        self._first: list[LauncherEvent] = []
        self._last: deque[LauncherEvent] = deque(maxlen=_LAST_EVENTS)
        self._begun: list[LauncherEvent] = []
        self._left_out = 0
        self._launchers: list[str] = []
        self._newlines = 0
        self._partial = False

    def block(self, block: bytes) -> None:
        """Whole lines (each but the file's last with its end)."""
        wanted = self._shapes.wanted(block)
        if wanted or self._opened:
            self._lines(block, wanted)
        self._newlines += block.count(b"\n")
        self._partial = not block.endswith(b"\n")

    def _lines(self, block: bytes, wanted: dict[bytes, int]) -> None:
        lines = block.split(b"\n")
        unended = 0 if block.endswith((b"\n", b"\r")) else self._newlines + len(lines)
        for number, whole in enumerate(lines, self._newlines + 1):
            # A progress bar rewrites its line.
            parts = whole.removesuffix(b"\r").split(b"\r") if b"\r" in whole else (whole,)
            for part in parts:
                raw = part[:LONGEST]
                bits = wanted.get(raw.translate(_FOLD), 0) | self._opened
                if bits:
                    self._line(raw, number, bits, number == unended and part is parts[-1])

    def _line(self, raw: bytes, number: int, bits: int, cut: bool) -> None:
        readers = self._chosen.get(bits)
        if readers is None:
            readers = [(1 << at, reader) for at, reader in enumerate(self._readers) if bits >> at & 1]
            self._chosen[bits] = readers
        for line in job_lines(raw, number):
            if cut:
                line = replace(line, cut=True)
            for bit, reader in readers:
                for event in reader.read(line):
                    self._keep(event)
                if reader.open:
                    self._opened |= bit
                else:
                    self._opened &= ~bit

    def _keep(self, event: LauncherEvent) -> None:
        self._keep_one(event)
        if isinstance(event, ExceptionSeen):
            for text in in_exception(event) if not event.cut else ():
                self._keep_one(text)
        elif isinstance(event, NativeText):
            for text in in_native(event):
                self._keep_one(text)
        elif isinstance(event, ProcessDied):
            for began in self._attempts.after(event):
                self._keep_one(began)
            if self._attempts.open:
                self._opened |= 1 << (len(self._readers) - 1)

    def _keep_one(self, event: LauncherEvent) -> None:
        launcher = getattr(event, "launcher", None)
        if isinstance(event, AttemptBegan):
            # Few, and what stands between them must not be taken for one attempt's.
            if len(self._begun) < _MOST_ATTEMPTS:
                self._begun.append(event)
            return
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
        events = sorted([*self._begun, *self._first, *self._last], key=lambda event: event.line.number)
        return LauncherLog(
            path=path,
            launchers=self._launchers,
            lines=self._newlines + self._partial,
            events=[_of_file(without_secrets(event), path) for event in events],
            cut=self._left_out > 0,
        )


def _of_file(event: LauncherEvent, path: str | None) -> LauncherEvent:
    """Line numbers of two files say nothing about each other, so each line knows its own."""
    if path is None:
        return event
    return replace(event, line=replace(event.line, path=path))


class _Shapes:
    """Which lines hold an anchor, and whose. Lines that differ in digits only have one shape, and a job prints few
    shapes over and over: each is searched once."""

    _MOST = 20_000

    def __init__(self, anchors: tuple[tuple[str, ...], ...]) -> None:
        bits: dict[bytes, int] = {}
        for at, words in enumerate(anchors):
            for word in words:
                # Within JSON a word that is not ASCII may be written as escapes.
                for form in {word.encode(), word.encode("ascii", "backslashreplace")}:
                    form = form.translate(_FOLD)
                    bits[form] = bits.get(form, 0) | 1 << at
        self._ascii = [(word, readers) for word, readers in sorted(bits.items()) if word.isascii()]
        self._other = [(word, readers) for word, readers in sorted(bits.items()) if not word.isascii()]
        self._plain: set[bytes] = set()
        self._wanted: dict[bytes, int] = {}

    def wanted(self, block: bytes) -> dict[bytes, int]:
        """The shapes of the block's lines that hold an anchor: the readers that want them, a bit each."""
        found = {shape[:LONGEST] for shape in block.translate(_FOLD).replace(b"\r", b"\n").split(b"\n")}
        wanted = {shape: self._wanted[shape] for shape in found & self._wanted.keys()}
        new = list(found - self._plain - wanted.keys())
        if not new:
            return wanted
        anchored = self._anchored(new)
        if len(self._wanted) + len(anchored) > self._MOST:
            self._wanted.clear()
        if len(self._plain) + len(new) > self._MOST:
            self._plain.clear()
        self._wanted.update((shape, bits) for shape, bits in anchored.items() if len(shape) < _LONGEST_KNOWN)
        self._plain.update(
            shape for shape in new[: self._MOST] if len(shape) < _LONGEST_KNOWN and shape not in anchored
        )
        return wanted | anchored

    def _anchored(self, shapes: list[bytes]) -> dict[bytes, int]:
        text = b"\n".join(shapes)
        if b"\x1b" in text:
            text = without_colours(text.decode("latin-1")).encode("latin-1")
        bits: dict[int, int] = {}  # by where the line begins
        for word, readers in self._ascii if text.isascii() else [*self._ascii, *self._other]:
            at = text.find(word)
            while at >= 0:
                start = text.rfind(b"\n", 0, at) + 1
                bits[start] = bits.get(start, 0) | readers
                end = text.find(b"\n", at)
                at = text.find(word, end) if end >= 0 else -1
        if not bits:
            return {}
        starts = accumulate((len(line) + 1 for line in text.split(b"\n")), initial=0)
        return {shape: bits[start] for shape, start in zip(shapes, starts, strict=False) if start in bits}


@cache
def _shapes(anchors: tuple[tuple[str, ...], ...]) -> _Shapes:
    """One for all logs: those of a thousand ranks are alike."""
    return _Shapes(anchors)


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
    """The same bytes in pieces that are worth a search each."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        for start in range(0, len(data), _PIECE):
            yield bytes(data[start : start + _PIECE])
        return
    small: list[bytes] = []
    size = 0
    for piece in data:
        if len(piece) > _PIECE:
            yield b"".join(small)
            small, size = [], 0
            yield from _pieces(piece)
            continue
        small.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield b"".join(small)
            small, size = [], 0
    yield b"".join(small)


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
    # A terminal title ends in BEL, and some programs set one in every line.
    text = without_colours(head[:LONGEST].decode("latin-1")).encode("latin-1").lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        return False
    if text[:1] == b"{" or re.match(rb"\[\s*[\[{\"]", text):
        return looks_like_json_lines(text)
    strange = len(text) - len(text.translate(None, _CONTROLS))
    if strange * 50 > len(text) or text.count(b"\0") * 20 > len(text):
        return False
    if b"\0" in text[:4] or text.startswith((b"\x7fELF", b"\x1f\x8b", b"PK\x03\x04", b"%PDF-", b"\x89PNG")):
        return False
    if not _is_text(text):
        return False
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    return sum(_KERNEL_LINE.match(line) is not None for line in lines) * 2 < len(lines)


def _is_text(text: bytes) -> bool:
    """UTF-8, up to torn characters and some words in another encoding."""
    return text.isascii() or text.decode("utf-8", "replace").count("\ufffd") * 10 <= len(text)

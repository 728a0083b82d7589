"""What Python, C++ and the C library print into a job's log before a process ends.

A traceback is told apart by the label before its lines ("[rank0]: ", "[1]<stderr>:") or by whatever else stood before
its first line, so ranks that print at the same time do not mix; without labels what fits is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from ftforensics.model.launcher import ExceptionSeen, LauncherEvent, NativeText, TextLine
from ftforensics.parsers.abort_text import AbortKind, abort_kind
from ftforensics.parsers.launcher_dataloader import workers_of
from ftforensics.parsers.launcher_line import JobLine
from ftforensics.parsers.peer_lost import says_peer_lost

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(.{0,2000})", line (\d{1,9})(?:, in (.{0,500}))?$')
# A class in a function is "f.<locals>.Error".
_LAST = re.compile(r"^((?:[A-Za-z_<][\w<>]*\.)*[A-Za-z_]\w*)(?::(?: (.*)|$)|$)")
# rich.traceback, which typer and many training scripts install: a frame of lines around the stack, the message below.
_BOXED = "Traceback (most recent call last)"
_BOX = ("╭", "┌", "+-")
_BOX_LINES = ("│", "╰", "└", "|", "+-")
_BOX_FRAME = re.compile(r"^[│|] (/.{0,2000}?):(\d{1,9}) in (\S{1,500})")
_ERROR_NAME = re.compile(r"(?:Error|Exception|Warning|Interrupt|Exit|Timeout|Expired|Aborted|Pool|Empty|Full|error)$")
# The launcher says with it what its summary says in full.
_SUMMARIES = frozenset({"ChildFailedError"})
# traceback.py, _cause_message and _context_message; sys.unraisablehook.
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception, another")
_IGNORED = "Exception ignored in"
_MESSAGE = 2000
# Between two lines of one traceback at most so many others without a label; then it is taken for cut.
_MOST_FOREIGN = 200
_NCCL_LINES, _BROKEN_LINES, _BEHIND_COLON = 3, 1, 2
_NARROW = 60  # characters; rich breaks lines at 80 where nobody says how wide the terminal is
_MOST_OPEN = 4096
_MOST_ODD = 16
_LONGEST_TRACEBACK = 20_000

_SUMMARY_RANK = re.compile(r"^.{0,60}?  rank *: (\d{1,7}) \(local_rank: ")

_FATAL = re.compile(r"Fatal Python error: (.{1,300})$")
_CXX = re.compile(
    r"terminate called (?:after throwing an instance of '(?P<type>.{1,500})'"
    r"|(?P<bare>without an active exception|recursively))"
)
_LIBCXX = re.compile(
    r"libc\+\+abi: terminating (?:with|due to) uncaught (?:foreign )?exception"
    r"(?: of type (?P<type>\S{1,500}?)(?:: (?P<what>.*))?)?$"
)
_WHAT = re.compile(r"^  what\(\):  ?(.*)$")
# torch/_utils.py, ExceptionWrapper.reraise
_OF_WORKER = re.compile(r"Caught \w{1,200} in DataLoader worker process \d{1,7}\.")
_WORKER_FAULT = re.compile(r"ERROR: Unexpected (.{1,60}?) encountered in worker\.")
_OLD_GLIBC = re.compile(r"\*\*\* Error in [`'].{0,500}?': (.{1,200}?)(?:: 0x[0-9a-f]+)? \*\*\*")
_HEAP = re.compile(
    r"(?:(?:malloc|free|realloc|calloc|memalign|mremap_chunk|munmap_chunk|malloc_consolidate|systrim|sysmalloc|unlink_chunk|"
    r"tcache_thread_shutdown|_int_free|_int_malloc|malloc_check_get_size|chunk_main_arena)\(\): \S.{0,120}|"
    r"corrupted (?:double-linked list|size vs\. prev_size).{0,60}|double free or corruption \(\S{1,20}\)|"
    r"Fatal glibc error: .{1,300})$"
)
_HOST_ASSERT = re.compile(r"Assertion [`'].{1,1000}' failed\.$")
_WHAT_WITHIN = 20  # lines between "terminate called" and "what()" when ranks print at once


@dataclass
class _Traceback:
    label: str
    rank: int | None
    started: int
    file: str | None = None
    file_line: int | None = None
    function: str | None = None
    body: bool = False  # any line of it was seen
    direct: bool = False  # the line before was its own
    foreign: int = 0
    chained: bool = False
    ignored: bool = False
    handling: bool = False
    boxed: bool = False  # rich.traceback draws a frame around it, and breaks long messages


@dataclass
class _Thrown:
    """A C++ exception's type that waits for its `what()`."""

    line: TextLine
    type: str | None
    rank: int | None


@dataclass
class _Unfinished:
    """What an exception says goes on below its last line: NCCL's error code, what follows a colon, a broken line."""

    event: ExceptionSeen
    joint: str  # what stands between two lines
    left: int


class PythonReader:
    anchors = (
        _BOXED,
        "Fatal Python error: ",
        "terminate called ",
        "libc++abi: terminating ",
        " encountered in worker.",
        "double free or corruption",
        "(): ",
        "corrupted ",
        "Fatal glibc error: ",
        "Assertion ",
        " detected ***",
        "*** Error in ",
        "(local_rank: ",
        *_CHAINED,
        _IGNORED,
    )

    def __init__(self) -> None:
        self._open: dict[str, _Traceback] = {}
        self._odd: list[str] = []  # labels that no pattern knows
        self._thrown: dict[str, _Thrown] = {}
        self._unfinished: dict[str, _Unfinished] = {}
        self._announced: dict[str, str] = {}  # by label: what a line said about the traceback that follows
        self._summary_rank: int | None = None  # of the entry in torchrun's summary that is being printed

    @property
    def open(self) -> bool:
        return bool(self._open or self._thrown or self._unfinished)

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        yield from self._overdue(line.number)
        text = line.text
        ranked = _SUMMARY_RANK.match(text)
        if ranked:
            self._summary_rank = int(ranked[1])
        start = text.find(_TRACEBACK)
        if start < 0 and text.startswith(_BOX) and _BOXED in text:
            start = 0
        if start >= 0:
            yield from self._flush(line.label)
            self._begin(line, text[:start])
            return
        said = text.lstrip()
        if said.startswith((*_CHAINED, _IGNORED)) and len(self._announced) < _MOST_OPEN:
            self._announced[line.label] = next(word for word in (*_CHAINED, _IGNORED) if said.startswith(word))
        label = line.label
        for odd in self._odd:
            if label + text[: len(odd) - len(label)] == odd:
                label, text = odd, text[len(odd) - len(label) :]
                break
            if self._open[odd].started == line.number - 1 and label not in self._open and text.startswith('  File "'):
                self._unglue(odd, label)
                break
        yield from self._continued(label, text)
        traceback = self._open.get(label)
        if traceback is not None:
            yield from self._inside(line, label, text, traceback)
        yield from self._native(line, line.text[:4096])

    def end(self) -> Iterator[LauncherEvent]:
        for label in [*self._unfinished, *self._thrown]:
            yield from self._flush(label)
        self._open.clear()

    # --- tracebacks ---------------------------------------------------------------------------------------------------

    def _begin(self, line: JobLine, before: str) -> None:
        if before.strip() == "Original":  # a DataLoader worker's own, quoted by its parent
            before = ""
        rank = line.rank
        if before.lstrip().startswith("traceback :"):  # torchrun's summary indents the traceback by two
            before, rank = "  ", self._summary_rank
        label = line.label + before[:200]
        if before:
            self._odd = [label, *(odd for odd in self._odd if odd != label and odd in self._open)][:_MOST_ODD]
        if len(self._open) >= _MOST_OPEN:
            self._open.pop(next(iter(self._open)))
        self._open.pop(label, None)
        announced = self._announced.pop(line.label, None)
        self._open[label] = _Traceback(
            label,
            rank,
            line.number,
            chained=announced in _CHAINED,
            handling=announced == _CHAINED[1],
            ignored=announced == _IGNORED,
            boxed=line.text.startswith(_BOX),
        )

    def _inside(self, line: JobLine, label: str, text: str, traceback: _Traceback) -> Iterator[LauncherEvent]:
        if text.startswith(_BOX_LINES if traceback.boxed else "  "):
            traceback.body = traceback.direct = True
            frame = (_BOX_FRAME if traceback.boxed else _FRAME).match(text)
            if frame:
                traceback.file, traceback.file_line = frame[1], int(frame[2])
                traceback.function = frame[3]
            return
        last = _LAST.match(text.rstrip())
        if last and traceback.body and _is_exception(last[1], traceback.direct):
            self._drop(label)
            yield from self._raised(line, traceback, last[1], (last[2] or "").strip())
            return
        traceback.direct = False
        traceback.foreign += 1
        if traceback.foreign > _MOST_FOREIGN:
            self._drop(label)

    def _unglue(self, odd: str, label: str) -> None:
        """What stood before "Traceback" was no label but an unfinished line, as a progress bar is."""
        traceback = self._open[odd]
        self._drop(odd)
        traceback.label = label
        self._open[label] = traceback

    def _drop(self, label: str) -> None:
        self._open.pop(label, None)
        self._odd = [odd for odd in self._odd if odd != label]

    def _raised(self, line: JobLine, traceback: _Traceback, kind: str, message: str) -> Iterator[LauncherEvent]:
        if kind.rpartition(".")[2] in _SUMMARIES:
            return
        workers = workers_of(message)
        event = ExceptionSeen(
            line=line.cited(),
            type=kind[:300],
            message=message[:_MESSAGE],
            rank=traceback.rank,
            peer_lost=not workers and says_peer_lost(kind, message, traceback.file),
            worker_pid=workers[0] if workers else None,
            file=traceback.file,
            file_line=traceback.file_line,
            function=traceback.function,
            chained=traceback.chained,
            ignored=traceback.ignored,
            handling=traceback.handling,
            of_worker=_OF_WORKER.match(message) is not None,
        )
        if event.peer_lost:
            yield event
        elif "NCCL error" in message:
            self._unfinished[traceback.label] = _Unfinished(event, "\n", _NCCL_LINES)
        elif traceback.boxed and len(line.text) > _NARROW:
            self._unfinished[traceback.label] = _Unfinished(event, " ", _BROKEN_LINES)
        elif line.text.rstrip().endswith(":"):
            self._unfinished[traceback.label] = _Unfinished(event, "\n", _BEHIND_COLON)
        else:
            yield event

    def _continued(self, label: str, text: str) -> Iterator[LauncherEvent]:
        waiting = self._unfinished.get(label)
        if waiting is None:
            return
        event = waiting.event
        message = f"{event.message}{waiting.joint}{text.strip()}".strip()[:_MESSAGE]
        nccl = "NCCL error" in event.message
        lost = nccl and says_peer_lost(event.type, text, event.file)
        own = lost or text.startswith(("nccl", "Last error", "NCCL")) if nccl else bool(text.strip())
        if own:
            waiting.event = replace(event, message=message, peer_lost=event.peer_lost or lost)
        waiting.left -= 1
        if waiting.left == 0 or own is not (nccl or waiting.joint == " "):
            yield from self._flush(label)

    # --- native texts -------------------------------------------------------------------------------------------------

    def _native(self, line: JobLine, text: str) -> Iterator[LauncherEvent]:
        thrown = self._thrown.get(line.label)
        what = _WHAT.match(text) if thrown else None
        if thrown and what:
            del self._thrown[line.label]
            yield NativeText(thrown.line, "cxx-exception", thrown.type, what[1].strip()[:_MESSAGE] or None, thrown.rank)
            return
        cxx = _CXX.search(text)
        if cxx:
            yield from self._flush(line.label)
            if cxx["type"]:
                self._thrown[line.label] = _Thrown(line.cited(), cxx["type"], line.rank)
            else:
                yield NativeText(line.cited(), "cxx-exception", None, cxx["bare"], line.rank)
            return
        libcxx = _LIBCXX.search(text)
        if libcxx:
            yield NativeText(line.cited(), "cxx-exception", libcxx["type"], libcxx["what"], line.rank)
            return
        fatal = _FATAL.search(text)
        if fatal:
            yield NativeText(line.cited(), "fatal-python-error", message=fatal[1].strip(), rank=line.rank)
            return
        fault = _WORKER_FAULT.search(text)
        if fault:
            yield NativeText(line.cited(), "worker-fault", message=fault[1], rank=line.rank)
            return
        complaint = _complaint(text.rstrip())
        if complaint:
            kind, message = complaint
            yield NativeText(line.cited(), kind, message=message[:_MESSAGE], rank=line.rank)

    def _overdue(self, number: int) -> Iterator[LauncherEvent]:
        if self._thrown:
            for label in [label for label, one in self._thrown.items() if number - one.line.number > _WHAT_WITHIN]:
                yield from self._flush(label)
        if self._unfinished:
            overdue = [key for key, one in self._unfinished.items() if number - one.event.line.number > _WHAT_WITHIN]
            for label in overdue:
                yield from self._flush(label)
        while self._open:
            label = next(iter(self._open))  # the oldest
            if number - self._open[label].started <= _LONGEST_TRACEBACK:
                break
            self._drop(label)

    def _flush(self, label: str) -> Iterator[LauncherEvent]:
        waiting = self._unfinished.pop(label, None)
        if waiting:
            yield waiting.event
        thrown = self._thrown.pop(label, None)
        if thrown:
            yield NativeText(thrown.line, "cxx-exception", thrown.type, None, thrown.rank)


def _is_exception(name: str, direct: bool) -> bool:
    """Is `name` an exception's? A job's own line ("Epoch: 4") that came between is not."""
    last = name.rpartition(".")[2]
    return bool(_ERROR_NAME.search(last)) or (direct and ("." in name or last[0].isupper()))


def _complaint(text: str) -> tuple[str, str] | None:
    """glibc's and assert(3)'s last words: (kind, message)."""
    old = _OLD_GLIBC.search(text)
    if old:
        return "heap", old[1]
    if _HEAP.match(text):
        return ("assertion" if abort_kind(text) is AbortKind.ASSERT else "heap"), text
    if text.startswith("*** ") and " detected ***" in text:
        kind = abort_kind(text)
        return (kind.value, text) if kind in (AbortKind.STACK_SMASHED, AbortKind.BUFFER_OVERFLOW) else None
    if _HOST_ASSERT.search(text):  # CUDA's device asserts end in a backquote
        return ("heap" if abort_kind(text) is AbortKind.HEAP else "assertion"), text
    return None

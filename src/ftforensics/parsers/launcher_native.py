"""What C++ and the C library print into a job's log before a process ends, and Python's own fatal error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ftforensics.model.launcher import LauncherEvent, NativeText, TextLine
from ftforensics.parsers.abort_text import AbortKind, abort_kind
from ftforensics.parsers.launcher_line import JobLine

_MESSAGE = 2000
_FATAL = re.compile(r"Fatal Python error: (.{1,300})$")
_CXX = re.compile(
    r"terminate called (?:after throwing an instance of '(?P<type>.{1,500})'"
    r"|(?:without an active exception|recursively))"
)
_LIBCXX = re.compile(
    r"libc\+\+abi: terminating (?:with|due to) uncaught (?:foreign )?exception"
    r"(?: of type (?P<type>\S{1,500}?)(?:: (?P<what>.*))?)?$"
)
_WHAT = re.compile(r"^  what\(\):  ?(.*)$")
_WORKER_FAULT = re.compile(r"ERROR: Unexpected (.{1,60}?) encountered in worker\.")
_OLD_GLIBC = re.compile(r"\*\*\* Error in [`'].{0,500}?': (.{1,200}?)(?:: 0x[0-9a-f]+)? \*\*\*")
_HEAP = re.compile(
    r"(?:(?:malloc|free|realloc|calloc|memalign|mremap_chunk|munmap_chunk|malloc_consolidate|systrim|sysmalloc|unlink_chunk|"
    r"tcache_thread_shutdown|_int_free|_int_malloc|malloc_check_get_size|chunk_main_arena)\(\): \S.{0,120}|"
    r"corrupted (?:double-linked list|size vs\. prev_size).{0,60}|double free or corruption \(\S{1,20}\)|"
    r"Fatal glibc error: .{1,300})$"
)
_HOST_ASSERT = re.compile(r"Assertion [`'].{1,1000}' failed\.$")
_MOST_THROWN = 4096
_WHAT_WITHIN = 20  # lines between "terminate called" and "what()" when ranks print at once


@dataclass
class _Thrown:
    """A C++ exception's type that waits for its `what()`."""

    line: TextLine
    type: str | None
    rank: int | None


class NativeReader:
    anchors = (
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
    )

    def __init__(self) -> None:
        self._thrown: dict[str, _Thrown] = {}  # by label

    @property
    def open(self) -> bool:
        return bool(self._thrown)

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        while self._thrown:
            label = next(iter(self._thrown))  # the oldest
            if line.number - self._thrown[label].line.number <= _WHAT_WITHIN and len(self._thrown) < _MOST_THROWN:
                break
            yield from self._flush(label)
        yield from self._native(line, line.text[:4096])

    def end(self) -> Iterator[LauncherEvent]:
        for label in list(self._thrown):
            yield from self._flush(label)

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
                yield NativeText(line.cited(), "cxx-exception", None, None, line.rank)
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

    def _flush(self, label: str) -> Iterator[LauncherEvent]:
        thrown = self._thrown.pop(label, None)
        if thrown:
            yield NativeText(thrown.line, "cxx-exception", thrown.type, None, thrown.rank)


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

"""Questions that several causes ask of a stack."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash, PythonFrame
from ftforensics.model.diagnosis import Frame


def frame_text(frame: Frame) -> str:
    place = frame.library.rpartition("/")[2] if frame.library else "no known library"
    offset = f" +{frame.offset:#x}" if frame.offset is not None else ""
    return f"{frame.function} in {place}{offset}" if frame.function else f"{place}{offset}"


def find_function(crash: Crash, names: Collection[str], depth: int = 64) -> Cite | None:
    """The innermost native frame, within `depth`, whose function (without its parameters) is one of `names`."""
    for index, frame in enumerate(crash.native[:depth]):
        if frame.trust != "scan" and plain_name(frame) in names:
            return Cite("crash", f"native.frames[{index}]", frame_text(frame))
    return None


def plain_name(frame: Frame) -> str:
    """The function without parameters and symbol version: "abort" of "abort@@GLIBC_2.2.5", "f" of "f(int)"."""
    return (frame.function or "").partition("(")[0].partition("@")[0]


def top_frame(crash: Crash) -> Cite | None:
    if not crash.native:
        return None
    return Cite("crash", "native.frames[0]", "died in " + frame_text(crash.native[0]))


def top_python(crash: Crash) -> Cite | None:
    if not crash.python:
        return None
    return Cite("crash", "python", python_text(crash.python[0]))


def python_text(frame: PythonFrame) -> str:
    return f"{frame.file or '?'}:{frame.line if frame.line is not None else '?'} in {frame.function or '?'}"


def longest_repeat(names: Sequence[str]) -> tuple[str, int] | None:
    """The name that is most often on the stack, and how often, when recursion is plain.

    Plain: 20 times or more, or more than half of at least 20 frames (two functions that call each other).
    """
    if len(names) < 20:
        return None
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    name, count = max(counts.items(), key=lambda item: item[1])
    return (name, count) if count * 2 > len(names) or count >= 20 else None

"""Stack frames as a person reads them: a name and a place, repeats folded."""

from __future__ import annotations

import os.path
from collections.abc import Sequence

import msgspec

from ftforensics.model.diagnosis import Frame
from ftforensics.parsers.cxx_name import bare_name
from ftforensics.report.escape import printable

LONGEST_CYCLE = 12  # frames; mutual recursion in parsers and autograd stays below


class Line(msgspec.Struct, frozen=True):
    """One line of a stack. name: function, or "?" ; place: library or file; remark: what to doubt about it."""

    name: str
    place: str
    remark: str = ""


def line_of(frame: Frame, *, full: bool = False) -> Line:
    """full: whole paths, template arguments and parameters."""
    if frame.python:
        file = printable(frame.file or "?")
        place = file if full else tail_of(file)
        return Line(printable(frame.function or "?"), f"{place}:{frame.line}" if frame.line else place)
    library = printable(frame.library or "")
    place = library if full else os.path.basename(library)
    offset = f"+{frame.offset}" if frame.offset is not None else ""
    if frame.function is None:
        # Library and offset are all there is, so they are what a person looks for.
        name = (os.path.basename(library) or "address in no file") + offset
        place = os.path.dirname(library)
    else:
        name = printable(frame.function)
        name = name if full else bare_name(name)
        if full:
            name += f" +{frame.function_offset}" if frame.function_offset is not None else ""
            place += offset
        if frame.file:
            source = printable(frame.file)
            place = f"{place} ({source if full else os.path.basename(source)}:{frame.line})"
    remark = {"scan": "guessed", "fp": "by frame pointer"}.get(frame.trust or "", "")
    return Line(name, place, remark if full or frame.trust == "scan" else "")


def tail_of(path: str, parts: int = 2) -> str:
    """The last parts of a path. The file name alone says little when it is `__init__.py`."""
    names = path.split("/")
    if len(names) <= parts:
        return path
    wanted = parts if names[-1] in ("__init__.py", "__main__.py", "_ops.py", "module.py") else 1
    return "/".join(names[-wanted:])


class Fold(msgspec.Struct, frozen=True):
    """A run of frames, shown once. times: how often it follows upon itself."""

    frames: list[Frame]
    times: int


def folded(frames: Sequence[Frame]) -> list[Fold]:
    """Frames with repetitions folded, so that a runaway recursion is a few lines. Functions count, offsets do not."""
    keys: list[tuple[object, ...]] = [
        (frame.function, frame.library, frame.file, frame.line, frame.python)
        if frame.function is not None
        else (frame.library, frame.offset)
        for frame in frames
    ]
    folds: list[Fold] = []
    single: list[Frame] = []
    index = 0
    while index < len(frames):
        length, times = _repetition(keys, index)
        if times >= 3:
            if single:
                folds.append(Fold(single, 1))
                single = []
            folds.append(Fold(list(frames[index : index + length]), times))
            index += length * times
        else:
            single.append(frames[index])
            index += 1
    if single:
        folds.append(Fold(single, 1))
    return folds


def _repetition(keys: list[tuple[object, ...]], start: int) -> tuple[int, int]:
    """(length, times) of the shortest cycle that begins at `start` and runs at least three times, else (1, 1)."""
    for length in range(1, LONGEST_CYCLE + 1):
        cycle = keys[start : start + length]
        times = 1
        while keys[start + times * length : start + (times + 1) * length] == cycle:
            times += 1
        if times >= 3 and len(cycle) == length:
            return length, times
    return 1, 1

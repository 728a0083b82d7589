"""Where an exception was raised, and what it came from: the traceback's own lines, innermost first as for a crash."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.blame import is_library_code
from ftforensics.model.diagnosis import Diagnosis, Frame, ProcessReport
from ftforensics.model.exception import Raised
from ftforensics.report.phrases import excerpt, frames_of, innermost_own, name, root

MOST_ORIGINS = 4  # without verbose
_LINKS = {"cause": "raised from", "context": "raised while handling"}


class Origin(msgspec.Struct, frozen=True):
    """words: "raised from KeyError: 'lr'"; place: its own innermost line; frames: innermost first."""

    words: str
    place: Frame | None
    frames: list[Frame]


def is_raised(diagnosis: Diagnosis) -> bool:
    """Did a Python exception end the process that the report is about, rather than a fault or a signal?"""
    process = root(diagnosis)
    if process is None or process.record is not None or process.exit.signal is not None:
        return False
    return bool(process.raised) or (bool(process.stack) and all(frame.python for frame in process.stack))


def frames(process: ProcessReport) -> list[Frame]:
    """Innermost first."""
    return process.stack or (frames_of(process.raised[0]) if process.raised else [])


def said(raised: Raised) -> str:
    """As "RuntimeError: size mismatch"."""
    return f"{name(raised.type)}: {excerpt(raised.message)}" if raised.message else name(raised.type)


def origins(process: ProcessReport) -> list[Origin]:
    """What the exception came from, nearest first."""
    found = []
    for raised in process.raised[1:]:
        own = frames_of(raised)
        words = _LINKS.get(raised.link or "", "raised after")
        found.append(Origin(f"{words} {said(raised)}", innermost_own(own), own))
    return found


def runs_of_libraries(stack: Sequence[Frame]) -> list[list[Frame]]:
    """The stack in pieces: lines that stand alone, and runs of three or more library lines, which nobody reads. The
    innermost line is the place itself and stands alone whosever it is."""
    pieces: list[list[Frame]] = []
    run: list[Frame] = []
    for index, frame in enumerate(stack):
        if index and frame.python and is_library_code(frame.file or ""):
            run.append(frame)
            continue
        pieces += [run] if len(run) > 2 else [[one] for one in run]
        run = []
        pieces.append([frame])
    return pieces + ([run] if len(run) > 2 else [[one] for one in run])


def packages(run: Sequence[Frame]) -> str:
    """As "torch, accelerate"."""
    found = dict.fromkeys(filter(None, (_package(frame.file or "") for frame in run)))
    return ", ".join(map(name, list(found)[:3])) + (", ..." if len(found) > 3 else "")


def _package(file: str) -> str:
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in file:
            return file.partition(folder)[2].partition("/")[0].removesuffix(".py")
    return "the standard library" if "/lib/python3" in file else ""

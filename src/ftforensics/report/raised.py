"""Where an exception was raised, and what it came from: the traceback's own lines, innermost first as for a crash."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.blame import is_library_code
from ftforensics.model.diagnosis import Diagnosis, Frame, ProcessReport
from ftforensics.model.exception import Raised
from ftforensics.report.phrases import excerpt, frames_of, innermost_own, name, root

MOST_ORIGINS = 4  # without verbose
SHORTEST_RUN = 3  # library lines that are worth folding
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


class Piece(msgspec.Struct, frozen=True):
    """Lines of a stack that follow one another. libraries: a run of library lines, which nobody reads."""

    frames: list[Frame]
    libraries: bool = False


def pieces(stack: Sequence[Frame]) -> list[Piece]:
    """Runs of three or more library lines apart from the rest. The innermost line is the place itself, whosever it
    is."""
    found: list[Piece] = []
    shown: list[Frame] = []
    run: list[Frame] = []
    for index, frame in enumerate([*stack, None]):
        if frame is not None and index and is_library_code(frame.file or ""):
            run.append(frame)
            continue
        if len(run) >= SHORTEST_RUN:
            found += [Piece(shown), Piece(run, libraries=True)]
            shown = []
        else:
            shown += run
        run = []
        if frame is not None:
            shown.append(frame)
    return [piece for piece in [*found, Piece(shown)] if piece.frames]


def packages(run: Sequence[Frame]) -> str:
    """As "torch, accelerate"."""
    found = dict.fromkeys(filter(None, (_package(frame.file or "") for frame in run)))
    return ", ".join(map(name, list(found)[:3])) + (", ..." if len(found) > 3 else "")


def _package(file: str) -> str:
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in file:
            return file.partition(folder)[2].partition("/")[0].removesuffix(".py")
    return "the standard library" if "/lib/python3" in file else ""

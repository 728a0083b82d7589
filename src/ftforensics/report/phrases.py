"""Half sentences that more than one output uses. All of them are escaped already."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timezone

from ftforensics.model.basics import Cite
from ftforensics.model.diagnosis import Diagnosis, Finding, Frame, ProcessReport, Remedy
from ftforensics.report.escape import printable
from ftforensics.report.frames import line_of


def confidence_word(diagnosis: Diagnosis) -> str:
    """PROVEN, LIKELY or UNDECIDED."""
    return printable(diagnosis.verdict.confidence).upper()


def summary(diagnosis: Diagnosis) -> str:
    return printable(diagnosis.verdict.summary) or "What ended the process is not known."


def who(process: ProcessReport) -> str:
    """As "rank 3 (pid 18033) on gpu-07"."""
    pid = f"pid {process.pid}" if process.pid is not None else "pid unknown"
    if process.worker_of is not None:
        parent = f"pid {process.worker_of}" if process.rank is None else f"rank {process.rank}, pid {process.worker_of}"
        name = f"a worker ({pid}) of {parent}"
    elif process.rank is not None:
        name = f"rank {process.rank} ({pid})"
    else:
        name = pid
    return f"{name} on {printable(process.host)}" if process.host else name


def circumstances(process: ProcessReport) -> Iterator[str]:
    """What it was doing: phase, step, the line of Python, the time."""
    if process.phase:
        yield f"in {printable(process.phase)}"
    if process.step is not None:
        yield f"step {process.step}"
    if frame := innermost_python(process):
        line = line_of(frame)
        yield f"{line.place} {line.name}()" if line.name.isidentifier() else f"{line.place} {line.name}"
    if process.time is not None:
        yield clock(process.time)


def innermost_python(process: ProcessReport) -> Frame | None:
    """The user's line: the innermost Python frame outside installed and standard libraries, else the innermost."""
    python = [frame for frame in process.stack if frame.python]
    own = (frame for frame in python if not is_library_code(frame.file or ""))
    return next(own, python[0] if python else None)


def is_library_code(file: str) -> bool:
    return any(part in file for part in ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "))


def clock(seconds: float) -> str:
    """UTC, because a report is read on another machine than the one it is about."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "at a time that no clock shows"


def ending(process: ProcessReport) -> str:
    """As "died of SIGSEGV"."""
    if process.exit.signal:
        return f"died of {printable(process.exit.signal)}"
    if process.exit.code is not None:
        return f"exited with status {process.exit.code}"
    return "ended"


def place_of(cite: Cite) -> str:
    """Where a person finds the line: "crash signal.address"."""
    return printable(" ".join(part for part in (cite.source, cite.locator) if part))


def analyze_command(path: str, *options: str) -> str:
    """The command that explains `path`, to be pasted into a shell."""
    return " ".join(["ftforensics analyze", *options, shlex.quote(printable(path))])


def remedy_text(remedy: Remedy) -> str:
    text = printable(remedy.text)
    return f"{text}  {printable(remedy.command)}".strip() if remedy.command else text


def root(diagnosis: Diagnosis) -> ProcessReport | None:
    """The process that the report is about: root comes first by contract."""
    return diagnosis.processes[0] if diagnosis.processes else None


def finding_of_verdict(diagnosis: Diagnosis) -> Finding | None:
    cause = diagnosis.verdict.cause
    return next((finding for finding in diagnosis.hypotheses if finding.cause == cause), None) if cause else None


def next_step(diagnosis: Diagnosis) -> str | None:
    """What to do first: the first remedy, else what would make the most wanted source readable."""
    if diagnosis.remedies:
        return remedy_text(diagnosis.remedies[0])
    for gap in diagnosis.gaps:
        if gap.grant:
            return printable(gap.grant)
    return None

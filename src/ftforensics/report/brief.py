"""Five lines for a dying process's stderr, printed by the crash reporter before the process is gone.

Imports neither rich nor a template engine: it runs while a crash waits.
"""

from __future__ import annotations

from ftforensics.model.diagnosis import Diagnosis, ProcessReport
from ftforensics.report.escape import shortened
from ftforensics.report.frames import line_of
from ftforensics.report.phrases import (
    analyze_command,
    circumstances,
    confidence_word,
    ending,
    innermost_python,
    next_step,
    root,
    summary,
    who,
)

PREFIX = "ftforensics: "
LONGEST = 160  # characters a line, the paths of the last one excepted: a log collector wraps or cuts longer ones


def brief(diagnosis: Diagnosis, record_path: str) -> list[str]:
    """Exactly five lines without line feeds: what and how sure, who and when, where, what now, the record's path."""
    process = root(diagnosis)
    step = next_step(diagnosis)
    decided = diagnosis.verdict.confidence != "undecided"
    lines = [
        f"{summary(diagnosis)} [{confidence_word(diagnosis)}]",
        "  "
        + (f"{who(process)} " + ", ".join([ending(process), *circumstances(process)]) if process else "which one?"),
        "  at " + (where(process) if process else "an unknown place"),
        f"  {'fix' if decided and diagnosis.remedies else 'next'}: {step}" if step else "  no remedy is known for this",
    ]
    lines = [shortened(line, LONGEST - len(PREFIX)) for line in lines]
    lines.append(f"  more: {analyze_command(record_path)}")
    return [PREFIX + line for line in lines]


def where(process: ProcessReport) -> str:
    """The innermost frame and the user's line, as "ftf_step (libstep.so) under train_step (train.py:88)"."""
    if not process.stack:
        return "an unknown place: no stack could be read"
    inner = process.stack[0]
    line = line_of(inner)
    text = f"{line.name} ({line.place})" if line.place else line.name
    python = innermost_python(process)
    if python is None or python is inner:
        return text
    line = line_of(python)
    return f"{text} under {line.name} ({line.place})"

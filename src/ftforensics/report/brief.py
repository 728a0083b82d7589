"""Five lines for stderr: by the crash reporter before the process is gone, by `run` where stderr is no terminal.

Imports neither rich nor a template engine: it runs while a crash waits.
"""

from __future__ import annotations

from ftforensics.model.diagnosis import Confidence, Diagnosis, ProcessReport
from ftforensics.report import fates, memory, raised
from ftforensics.report.escape import printable, shortened
from ftforensics.report.frames import line_of
from ftforensics.report.phrases import (
    SHORT_EXCERPT,
    analyze_command,
    called_at,
    circumstances,
    confidence_word,
    ended_well,
    ending,
    excerpt,
    finding_of_verdict,
    innermost_python,
    killed_for_memory,
    next_step,
    nobody_here,
    place_of,
    root,
    summary,
    who,
)

PREFIX = "ftforensics: "
LONGEST = 160  # characters a line, the paths of the last one excepted: a log collector wraps or cuts longer ones
_LEAST_WORDS = 24


def brief(diagnosis: Diagnosis, path: str) -> list[str]:
    """Exactly five lines without line feeds: what and how sure, who and when, where or what was seen, what now, where
    more is; one line for a run that ended well. path: of the record or run folder."""
    if ended_well(diagnosis):
        return [PREFIX + shortened(summary(diagnosis), LONGEST - len(PREFIX))]
    lines = [
        f"{summary(diagnosis)} [{confidence_word(diagnosis)}]",
        f"  {_whose(diagnosis)}",
        "  " + seen(diagnosis),
        f"  {step(diagnosis)}",
    ]
    lines = [shortened(line, LONGEST - len(PREFIX)) for line in lines]
    lines.append(f"  more: {analyze_command(path)}")
    return [PREFIX + line for line in lines]


def _whose(diagnosis: Diagnosis) -> str:
    process = root(diagnosis)
    if nobody_here(diagnosis):
        return fates.witnesses(diagnosis)
    return f"{who(process)} " + ", ".join([ending(process), *circumstances(process)]) if process else "which one?"


def step(diagnosis: Diagnosis) -> str:
    """What now. Where not all of it has room the command stays whole, for it is copied; one with less room than
    _LEAST_WORDS for its reason is left to the report."""
    word = "fix" if diagnosis.remedies and not _undecided(diagnosis) and not nobody_here(diagnosis) else "next"
    whole = next_step(diagnosis)
    if not whole:
        return "no remedy is known for this"
    room = LONGEST - len(f"{PREFIX}  {word}: ")
    if len(whole) <= room or not diagnosis.remedies:
        return f"{word}: {whole}"
    remedy = diagnosis.remedies[0]
    command = f"  {printable(remedy.command)}" if remedy.command else ""
    if room - len(command) < _LEAST_WORDS:
        command = ""
    words = printable(remedy.text)
    return f"{word}: {_begun(words, room - len(command))}{command}"


def _begun(text: str, limit: int) -> str:
    """`text` in at most `limit` characters, cut at the end and between words where it has words."""
    if len(text) <= limit:
        return text
    return (text[: limit - 1].rsplit(" ", 1)[0] or text[: limit - 1]).rstrip(" ,;:") + "…"


def seen(diagnosis: Diagnosis) -> str:
    """The line that says most: what was raised and where, the place of a fault, the memory of a kill, else the first
    piece of evidence."""
    process = root(diagnosis)
    if process is not None and raised.is_raised(diagnosis) and not nobody_here(diagnosis):
        place = innermost_python(process)
        words = raised.said(process.raised[0]) if process.raised else "raised"
        return f"{excerpt(words, SHORT_EXCERPT)} at {called_at(place)}" if place else words
    if process is not None and (process.stack or process.record) and not nobody_here(diagnosis):
        return f"at {where(process)}"
    if process is not None and process.memory is not None and (killed_for_memory(diagnosis) or _undecided(diagnosis)):
        return f"memory: {memory.in_short(process.memory)}"
    finding = finding_of_verdict(diagnosis)
    if finding is not None and finding.supports:
        cite = finding.supports[0]
        return f"because: {printable(cite.text)} ({place_of(cite)})"
    possible = next((one for one in diagnosis.hypotheses if one.confidence is not Confidence.RULED_OUT), None)
    if possible is not None:
        return f"possible: {printable(possible.cause)}, {printable(possible.summary)}"
    return "at an unknown place: nothing of its end was recorded"


def _undecided(diagnosis: Diagnosis) -> bool:
    return diagnosis.verdict.confidence == "undecided"


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

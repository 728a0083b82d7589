"""The earlier attempts of the job, a line each; those in a row that ended for the same cause in one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.causes.sizes import time_text
from ftforensics.model.diagnosis import Attempt, Diagnosis
from ftforensics.report.fates import ranges
from ftforensics.report.phrases import SHORT_EXCERPT, excerpt, name

_NUMBERED = re.compile(r"(attempt) (\d{1,9})")
_PID = re.compile(r" \(pid [^)]*\)$")  # another one each time


class Line(msgspec.Struct, frozen=True):
    """text: "attempts 0-2: the same cause 3 times: cgroup-oom (proven), rank 3"; paths: of each, for `analyze`."""

    text: str
    paths: list[str]


def lines(diagnosis: Diagnosis) -> list[Line]:
    """Oldest first."""
    return [_line(alike, diagnosis) for alike in _in_a_row(diagnosis.attempts)]


def _in_a_row(attempts: Sequence[Attempt]) -> Iterator[list[Attempt]]:
    alike: list[Attempt] = []
    for attempt in attempts:
        if alike and _key(alike[-1]) != _key(attempt):
            yield alike
            alike = []
        alike.append(attempt)
    if alike:
        yield alike


def _key(attempt: Attempt) -> tuple[str, str]:
    return attempt.outcome, attempt.cause or attempt.summary


def _line(alike: Sequence[Attempt], diagnosis: Diagnosis) -> Line:
    last = alike[-1]
    paths = [attempt.path for attempt in alike if attempt.path]
    if last.cause is None or last.outcome == "succeeded":
        times = f", {len(alike)} times" if len(alike) > 1 else ""
        return Line(f"{_names(alike)}: {excerpt(last.summary)}{times}", paths)
    decided = all(attempt.confidence != "undecided" for attempt in alike)
    confidences = ", ".join(dict.fromkeys(name(attempt.confidence) for attempt in alike))
    verdict = f"{name(last.cause)} ({confidences})"
    roots = list(dict.fromkeys(_PID.sub("", attempt.root) for attempt in alike if attempt.root))
    whose = ", ".join(map(name, roots[:4])) + (", ..." if len(roots) > 4 else "")
    if len(alike) == 1:
        whose = name(last.root) if last.root else ""
    what = ", ".join(filter(None, (verdict, whose)))
    if len(alike) > 1:
        what = f"the same {'cause ' if decided else ''}{len(alike)} times: {what}"
    elif last.began is not None and last.ended is not None and last.ended >= last.began:
        what += f", after {time_text(last.ended - last.began)}"
    if decided and last.cause == diagnosis.verdict.cause:
        what += ", as this time"
    elif len(alike) == 1 and last.summary:
        what += f": {excerpt(last.summary, SHORT_EXCERPT)}"
    return Line(f"{_names(alike)}: {what}", paths)


def _names(alike: Sequence[Attempt]) -> str:
    if len(alike) == 1:
        return name(alike[0].name)
    matches = [_NUMBERED.fullmatch(attempt.name) for attempt in alike]
    numbers = sorted({int(match[2]) for match in matches if match})
    if len(numbers) == len(alike):
        return f"attempts {ranges(numbers)}"
    return f"{name(alike[0].name)} to {name(alike[-1].name)}"

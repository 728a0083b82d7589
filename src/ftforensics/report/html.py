"""The report as one page of HTML: no script, no network, nothing outside the file.

Autoescape is on for every value, and every foreign string passes `escape.printable` first: HTML hides no control or
bidirectional character by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from ftforensics.causes.sizes import size_text, time_text
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Confidence, Diagnosis, MemoryHistory
from ftforensics.report import changes, details, fates, memory, phrases, plot, ring
from ftforensics.report.escape import printable
from ftforensics.report.frames import folded, line_of

WIDTH, HEIGHT = 600.0, 120.0  # of the curve, in the SVG's own units


class Curve(msgspec.Struct, frozen=True):
    """What the template draws. lines: coordinates of polylines; areas: the same, closed at the bottom; top: the words
    at the upper edge; limited: that edge is the limit."""

    lines: list[str]
    areas: list[str]
    top: str
    begin: str
    limited: bool


def render(diagnosis: Diagnosis, records: Sequence[CrashRecord] = ()) -> str:
    """records: the crash records it was made from, in the order of the processes that left one."""
    environment = Environment(
        loader=PackageLoader("ftforensics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = _printable
    root = phrases.root(diagnosis)
    finding = phrases.finding_of_verdict(diagnosis)
    others = [other for other in diagnosis.hypotheses if other is not finding]
    gaps = list(dict.fromkeys([*diagnosis.gaps, *(finding.unknown if finding else [])]))
    return environment.get_template("report.html").render(
        diagnosis=diagnosis,
        verdict=diagnosis.verdict,
        finding=finding,
        noted=[other for other in others if other.confidence is not Confidence.RULED_OUT],
        excluded=[other for other in others if other.confidence is Confidence.RULED_OUT],
        gaps=sorted(gaps, key=lambda gap: gap.grant is None),
        root=root,
        record=phrases.record_of_root(diagnosis, records),
        numbers=[
            (record, list(details.sections(record, process)))
            for record, process in phrases.with_records(diagnosis, records)
        ],
        curve=_curve(root.memory) if root and root.memory else None,
        last=ring.table(root, root.last_second) if root and root.last_second else None,
        consequences=fates.consequences(diagnosis),
        changes=changes,
        memory=memory,
        details=details,
        phrases=phrases,
        folded=folded,
        line_of=line_of,
    )


def _curve(history: MemoryHistory) -> Curve | None:
    scale = plot.scale_of(history)
    if scale is None:
        return None
    lines = plot.lines(history.points, scale, WIDTH, HEIGHT)
    return Curve(
        lines=lines,
        areas=[_closed(line) for line in lines if line],
        top=f"{'limit ' if scale.limited else ''}{size_text(scale.top)}",
        begin=f"-{time_text(scale.span)}",
        limited=scale.limited,
    )


def _closed(line: str) -> str:
    first, last = line.split(" ")[0].split(",")[0], line.split(" ")[-1].split(",")[0]
    return f"{first},{HEIGHT:.0f} {line} {last},{HEIGHT:.0f}"


def _printable(value: object) -> str:
    return "" if value is None else printable(str(value))

"""The report as one page of HTML: no script, no network, nothing outside the file.

Autoescape is on for every value, and every foreign string passes `escape.printable` first: HTML hides no control or
bidirectional character by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from ftforensics.causes.blame import is_library_code
from ftforensics.causes.sizes import size_text, time_text
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Confidence, Diagnosis, MemoryHistory, ProcessReport
from ftforensics.report import attempts, changes, course, details, fates, memory, phrases, plot, raised, ring
from ftforensics.report.escape import printable, shortened
from ftforensics.report.frames import folded, line_of

WIDTH, HEIGHT = 600.0, 120.0  # of the curve, in the SVG's own units
MOST_FATES = 100
MOST_MEMBERS = 32  # of one fate that are named
MOST_NAMED = 500  # processes that are named in all
MOST_ROWS = 300  # of anything else that a huge or hostile input could make endless
MOST_OPEN = 16  # lines of a timeline that need no shorter one
MOST_RECORDS = 16  # whose numbers are shown
LONGEST = 1000  # characters of one foreign text


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
    root = phrases.root(diagnosis)
    finding = phrases.finding_of_verdict(diagnosis)
    others = [other for other in diagnosis.hypotheses if other is not finding]
    gaps = list(dict.fromkeys([*diagnosis.gaps, *(finding.unknown if finding else [])]))
    table = fates.table(diagnosis, MOST_FATES)
    everything = course.course(diagnosis, full=True)
    shown_records = phrases.with_records(diagnosis, records)
    return _template().render(
        diagnosis=diagnosis,
        verdict=diagnosis.verdict,
        finding=finding,
        noted=[other for other in others if other.confidence is not Confidence.RULED_OUT],
        excluded=[other for other in others if other.confidence is Confidence.RULED_OUT],
        gaps=sorted(gaps, key=lambda gap: gap.grant is None),
        root=root,
        record=phrases.record_of_root(diagnosis, records),
        numbers=[(record, list(details.sections(record, process))) for record, process in shown_records[:MOST_RECORDS]],
        more_records=max(len(shown_records) - MOST_RECORDS, 0),
        with_threads=[process for process in diagnosis.processes if process.threads][:MOST_RECORDS],
        curve=_curve(root.memory) if root and root.memory else None,
        last=ring.table(root, root.last_second) if root and root.last_second else None,
        table=table,
        named=_named(table) if table else [],
        began=fates.first_time(diagnosis),
        course=everything,
        # A long one stays closed below what matters most.
        short=course.course(diagnosis, full=False) if everything and len(everything.entries) > MOST_OPEN else None,
        attempts=attempts.lines(diagnosis)[-MOST_ROWS:],
        raised=raised,
        fates=fates,
        is_library_code=is_library_code,
        changes=changes,
        memory=memory,
        details=details,
        phrases=phrases,
        folded=folded,
        line_of=line_of,
    )


@functools.cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("ftforensics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = _printable
    environment.filters["most"] = _most
    return environment.get_template("report.html")


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


def _named(table: fates.Table) -> list[ProcessReport]:
    """The processes that have a line of their own: some of each fate."""
    most = max(min(MOST_MEMBERS, MOST_NAMED // max(len(table.fates), 1)), 1)
    return [process for fate in table.fates for process in fate.members[:most]]


def _most(values: Sequence[object]) -> Sequence[object]:
    return values[:MOST_ROWS]


def _printable(value: object) -> str:
    return "" if value is None else shortened(printable(str(value)), LONGEST)

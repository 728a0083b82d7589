"""The report as one page of HTML: no script, no network, nothing outside the file.

Autoescape is on for every value, and every foreign string passes `escape.printable` first: HTML hides no control or
bidirectional character by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from jinja2 import Environment, PackageLoader, StrictUndefined

from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Confidence, Diagnosis
from ftforensics.report import details, phrases
from ftforensics.report.escape import printable
from ftforensics.report.frames import folded, line_of


def render(diagnosis: Diagnosis, records: Sequence[CrashRecord] = ()) -> str:
    """records: the crash records it was made from, root first."""
    environment = Environment(
        loader=PackageLoader("ftforensics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = _printable
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
        root=phrases.root(diagnosis),
        record=records[0] if records else None,
        numbers=[
            (record, list(details.sections(record, process)))
            for record, process in zip_longest(records, diagnosis.processes[: len(records)])
        ],
        details=details,
        phrases=phrases,
        folded=folded,
        line_of=line_of,
    )


def _printable(value: object) -> str:
    return "" if value is None else printable(str(value))

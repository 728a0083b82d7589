"""Weighs what the causes say about one crash.

A specific cause is the verdict only when it is at least likely. Two causes that exclude each other and are equally sure
make it undecided; compatible ones are ordered, and the first is the verdict. The residual speaks last.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.registry import Cause, Kind
from ftforensics.model.case import Crash
from ftforensics.model.diagnosis import Confidence, Finding, Verdict

_STRENGTH = {Confidence.PROVEN: 0, Confidence.LIKELY: 1, Confidence.POSSIBLE: 2, Confidence.RULED_OUT: 3}
# Who ended it, then which fault, then under which circumstance; the residual last.
_PRECEDENCE = {Kind.KILLER: 0, Kind.OWN_FAULT: 1, Kind.CIRCUMSTANCE: 2, Kind.RESIDUAL: 3}


class Weighed(msgspec.Struct, frozen=True):
    """hypotheses: all findings, the strongest first, the one that became the verdict left out; best: that one."""

    verdict: Verdict
    hypotheses: list[Finding]
    best: Finding | None


def weigh(crash: Crash, findings: Sequence[tuple[Cause, Finding]]) -> Weighed:
    ordered = sorted(findings, key=_order)
    listed = [finding for _, finding in ordered]
    mechanism = crash.reading.mechanism.value if crash.reading.mechanism else None
    # A residual sorts behind every specific cause of its strength: it comes first only when nothing specific is sure.
    sure = [(cause, finding) for cause, finding in ordered if _STRENGTH[finding.confidence] <= 1]
    if not sure:
        return Weighed(_undecided(crash, mechanism), listed, None)
    best_cause, best = sure[0]
    rivals = [
        finding
        for cause, finding in sure[1:]
        if cause.kind is best_cause.kind
        and cause.kind in (Kind.KILLER, Kind.OWN_FAULT)
        and finding.confidence is best.confidence
    ]
    if rivals:
        names = " or ".join(finding.cause for finding in (best, *rivals))
        summary = f"It was {names}: the evidence for each is equally strong."
        return Weighed(Verdict("failed", None, None, "undecided", summary, mechanism), listed, None)
    # Beside a specific cause the residual is no other hypothesis, only the same fact said with less.
    others = [finding for cause, finding in ordered if finding is not best and cause.kind is not Kind.RESIDUAL]
    verdict = Verdict("failed", best.cause, best.cause, best.confidence.value, best.summary, mechanism)
    return Weighed(verdict, others, best)


def _undecided(crash: Crash, mechanism: str | None) -> Verdict:
    signal = crash.record.signal
    if signal is None:
        return Verdict("unknown", None, None, "undecided", "How the process ended is not in the record.", mechanism)
    name = signal.name or (f"Signal {signal.number}" if signal.number else "A signal")
    return Verdict("failed", None, None, "undecided", f"{name} ended the process; why is not known.", mechanism)


def _order(pair: tuple[Cause, Finding]) -> tuple[int, int, str, str]:
    cause, finding = pair
    return (_STRENGTH[finding.confidence], _PRECEDENCE[cause.kind], cause.family, cause.id)

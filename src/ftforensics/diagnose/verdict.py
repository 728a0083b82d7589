"""Weighs what the causes say about one end.

A specific cause is the verdict only when it is at least likely. Two causes that exclude each other and are equally sure
make it undecided; compatible ones are ordered, and the first is the verdict. The residual speaks last: a likely one is
the verdict when nothing specific is, a possible one (`killed-unknown`) names an end that stays undecided.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.registry import Cause, Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Verdict
from ftforensics.model.signals import signal_name

_STRENGTH = {Confidence.PROVEN: 0, Confidence.LIKELY: 1, Confidence.POSSIBLE: 2, Confidence.RULED_OUT: 3}
# Who ended it, then which fault, then under which circumstance; the residual last.
_EXCEPTION = "python-exception"
_PRECEDENCE = {Kind.KILLER: 0, Kind.OWN_FAULT: 1, Kind.CIRCUMSTANCE: 2, Kind.RESIDUAL: 3}


class Weighed(msgspec.Struct, frozen=True):
    """hypotheses: all findings, the strongest first, the one that became the verdict left out; best: that one."""

    verdict: Verdict
    hypotheses: list[Finding]
    best: Finding | None


def weigh(death: Death, findings: Sequence[tuple[Cause, Finding]]) -> Weighed:
    ordered = sorted(findings, key=lambda pair: _order(pair, findings))
    listed = [finding for _, finding in ordered]
    mechanism = death.reading.mechanism.value if death.reading.mechanism else None
    # A residual sorts behind every specific cause of its strength: it comes first only when nothing specific is sure.
    sure = [(cause, finding) for cause, finding in ordered if _STRENGTH[finding.confidence] <= 1]
    if not sure:
        return _undecided(death, ordered, mechanism)
    best_cause, best = sure[0]
    rivals = [
        finding
        for cause, finding in sure[1:]
        if cause.kind is best_cause.kind
        and cause.kind in (Kind.KILLER, Kind.OWN_FAULT)
        and finding.confidence is best.confidence
        and cause.id not in best_cause.refines
    ]
    if rivals:
        names = " or ".join(finding.cause for finding in (best, *rivals))
        summary = f"It was {names}: the evidence for each is equally strong."
        return Weighed(Verdict("failed", None, None, "undecided", summary, mechanism), listed, None)
    # Beside a specific cause the residual is no other hypothesis, only the same fact said with less; so is the plain
    # exception beside what it was.
    others = [
        finding
        for cause, finding in ordered
        if finding is not best
        and cause.kind is not Kind.RESIDUAL
        and not (cause.id == _EXCEPTION and cause.id in best_cause.refines)
    ]
    # What refines a plain exception replaces it and stays one in kind.
    raised = _EXCEPTION in best_cause.refines and any(cause.id == _EXCEPTION for cause, _ in ordered)
    kind = _EXCEPTION if raised else best.cause
    verdict = Verdict("failed", best.cause, kind, best.confidence.value, best.summary, mechanism)
    return Weighed(verdict, others, best)


def _undecided(death: Death, ordered: Sequence[tuple[Cause, Finding]], mechanism: str | None) -> Weighed:
    listed = [finding for _, finding in ordered]
    # Only an end by SIGKILL has a name of its own while nobody knows who sent it.
    residual = next((finding for _, finding in ordered if finding.cause == "killed-unknown"), None)
    if residual is not None and residual.confidence is Confidence.POSSIBLE:
        verdict = Verdict("failed", residual.cause, residual.cause, "undecided", residual.summary, mechanism)
        return Weighed(verdict, [finding for finding in listed if finding is not residual], residual)
    outcome, summary = _what_is_known(death)
    return Weighed(Verdict(outcome, None, None, "undecided", summary, mechanism), listed, None)


def _what_is_known(death: Death) -> tuple[str, str]:
    """(outcome, one sentence) of an end that no cause explains."""
    if death.alive:
        return "unfinished", "The process still runs."
    if death.signal is not None:
        return "failed", f"{signal_name(death.signal)} ended the process; why is not known."
    if death.code is not None:
        return "succeeded" if death.code == 0 else "failed", f"The process ended with status {death.code}."
    if death.crash is not None:
        return "unknown", "How the process ended is not in the record."
    return "unknown", "The process ended unseen: nothing says how."


def _order(
    pair: tuple[Cause, Finding], findings: Sequence[tuple[Cause, Finding]]
) -> tuple[int, int, bool, int, str, str]:
    cause, finding = pair
    kind = _PRECEDENCE[cause.kind]
    refined = False
    for other, found in findings:
        if cause.id in other.refines and _STRENGTH[found.confidence] <= _STRENGTH[finding.confidence]:
            refined = True
        elif other.id in cause.refines and found.confidence is finding.confidence:
            kind = min(kind, _PRECEDENCE[other.kind])  # it stands where the one that it refines would
    return (_STRENGTH[finding.confidence], kind, refined, cause.order, cause.family, cause.id)

"""Asks every cause about one death and weighs the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import msgspec

from ftforensics.causes.raised import left_by
from ftforensics.causes.registry import Cause, causes, find_cause
from ftforensics.diagnose.change_fit import strengthened
from ftforensics.diagnose.contradictions import contradictions
from ftforensics.diagnose.handlers import signal_owners
from ftforensics.diagnose.likeness import MANY, Shape, shape_of
from ftforensics.diagnose.names import Resolver
from ftforensics.diagnose.verdict import Weighed, weigh
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, SignalOwners
from ftforensics.model.ledger import Changes

_SECOND = ("ended", "memory", "native")  # families whose causes may befall what is ending already


class Judged(msgspec.Struct, frozen=True):
    """consequence: what says that it ended because another process had; significance: diagnose.roles.MEMBER and on."""

    death: Death
    weighed: Weighed
    owners: list[SignalOwners] = []
    consequence: Cite | None = None
    significance: int = 0


_Answers = list[tuple[Weighed, list[SignalOwners]]]
Spread = Callable[[Sequence[Death], Callable[[Sequence[Death]], _Answers]], list[_Answers]]
"""Has consecutive shares of the deaths looked at, by several processes where they are many."""


def at_once(deaths: Sequence[Death], work: Callable[[Sequence[Death]], _Answers]) -> list[_Answers]:
    return [work(deaths)]


class Judge:
    """Ranks that their launcher ended are alike by the thousand: what is known of one of them is said of all."""

    def __init__(self, resolve: Resolver, changes: Changes | None, *, deaths: int = 1) -> None:
        """deaths: of the case, of which only many are worth the search for likeness in all that they say."""
        self._resolve = resolve
        self._changes = changes
        self._many = deaths > MANY
        self._alike: dict[Shape, Weighed] = {}

    def judge(self, death: Death) -> Judged:
        shape = shape_of(death, many=self._many)
        if shape is None:
            return self._fully(death)
        known = self._alike.get(shape)
        if known is None:
            judged = self._fully(death)
            self._alike[shape] = judged.weighed
            return judged
        return Judged(death, self._with_its_own(death, known), self._owners(death))

    def judge_all(self, deaths: Sequence[Death], spread: Spread) -> list[Judged]:
        """In their order. What comes back from another process is the answer, not the question with it."""
        answers = spread(deaths, lambda share: [(one.weighed, one.owners) for one in map(self.judge, share)])
        return [
            Judged(death, weighed, owners)
            for death, (weighed, owners) in zip(deaths, chain.from_iterable(answers), strict=True)
        ]

    def _with_its_own(self, death: Death, known: Weighed) -> Weighed:
        """The same verdict on this death's own evidence: only the cause that it names is asked again."""
        best = known.best
        cause = find_cause(best.cause) if best is not None else None
        if best is None or cause is None:
            return known
        found = list(cause.check(death.crash)) if cause.check is not None and death.crash is not None else []
        found += cause.check_death(death) if cause.check_death is not None else []
        strongest = _strongest_each([(cause, one) for one in found if one.cause == best.cause])
        if not strongest:
            return known
        own = strongest[0][1]
        own = msgspec.structs.replace(best, summary=own.summary, supports=own.supports, unknown=own.unknown)
        return msgspec.structs.replace(known, best=own)

    def again(self, judged: Judged) -> Judged:
        """With its own evidence in its findings, where those of one like it were taken."""
        weighed = self._fully(judged.death)
        return msgspec.structs.replace(judged, weighed=weighed.weighed, owners=weighed.owners)

    def _fully(self, death: Death) -> Judged:
        crash = death.crash
        doubts = contradictions(crash.record) if crash is not None else []
        findings = []
        for cause in causes():
            if cause.check is not None and crash is not None:
                findings += [(cause, _doubted(finding, doubts)) for finding in cause.check(crash)]
            if cause.check_death is not None:
                findings += [(cause, finding) for finding in cause.check_death(death)]
        findings = _after_its_exception(death, findings)
        findings = [(cause, strengthened(cause, found, self._changes)) for cause, found in _strongest_each(findings)]
        return Judged(death, weigh(death, findings), self._owners(death))

    def _owners(self, death: Death) -> list[SignalOwners]:
        return signal_owners(death.crash.record, self._resolve) if death.crash is not None else []


def _strongest_each(findings: list[tuple[Cause, Finding]]) -> list[tuple[Cause, Finding]]:
    """A cause that looked both at the record and at the rest speaks once, with the stronger answer."""
    order = list(Confidence)
    kept: dict[str, tuple[Cause, Finding]] = {}
    for cause, finding in findings:
        earlier = kept.get(cause.id)
        if earlier is None or order.index(finding.confidence) < order.index(earlier[1].confidence):
            kept[cause.id] = (cause, finding)
    return list(kept.values())


def _after_its_exception(death: Death, findings: list[tuple[Cause, Finding]]) -> list[tuple[Cause, Finding]]:
    """Who stopped it or what crashed in it when an exception had ended its main program came second."""
    own = left_by(death)
    if own is None or own.peer_lost:
        return findings
    against = [Cite(one.source, one.locator, f"before that nobody caught {one.text}"[:300]) for one in own.cites[:1]]
    return [
        (cause, msgspec.structs.replace(found, confidence=Confidence.POSSIBLE, against=[*found.against, *against]))
        if cause.family in _SECOND and found.confidence in (Confidence.PROVEN, Confidence.LIKELY)
        else (cause, found)
        for cause, found in findings
    ]


def _doubted(finding: Finding, doubts: Sequence[Cite]) -> Finding:
    """A record that contradicts itself proves nothing."""
    if not doubts:
        return finding
    confidence = Confidence.LIKELY if finding.confidence is Confidence.PROVEN else finding.confidence
    return msgspec.structs.replace(finding, confidence=confidence, against=[*finding.against, *doubts])

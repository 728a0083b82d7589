"""Asks every cause about one death and weighs the answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.registry import Cause, causes
from ftforensics.diagnose.change_fit import strengthened
from ftforensics.diagnose.contradictions import contradictions
from ftforensics.diagnose.handlers import signal_owners
from ftforensics.diagnose.names import Resolver
from ftforensics.diagnose.verdict import Weighed, weigh
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, SignalOwners
from ftforensics.model.ledger import Changes


class Judged(msgspec.Struct, frozen=True):
    """consequence: what says that it ended because another process had; significance: diagnose.roles.MEMBER and on."""

    death: Death
    weighed: Weighed
    owners: list[SignalOwners] = []
    consequence: Cite | None = None
    significance: int = 0


class Judge:
    """Ranks that their launcher ended are alike by the thousand: what is known of one of them is said of all."""

    def __init__(self, resolve: Resolver, changes: Changes | None) -> None:
        self._resolve = resolve
        self._changes = changes
        self._alike: dict[_Shape, Weighed] = {}

    def judge(self, death: Death) -> Judged:
        shape = _shape(death)
        if shape is None:
            return self._fully(death)
        known = self._alike.get(shape)
        if known is None:
            known = self._alike[shape] = self._fully(death).weighed
        return Judged(death, known)

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
        owners = signal_owners(crash.record, self._resolve) if crash is not None else []
        findings = [(cause, strengthened(cause, found, self._changes)) for cause, found in _strongest_each(findings)]
        return Judged(death, weigh(death, findings), owners)


_Shape = tuple[object, ...]


def _shape(death: Death) -> _Shape | None:
    """What the causes can tell consequences apart by; None for a death that has something of its own to say."""
    if death.role != "collateral" or death.crash is not None:
        return None
    if death.oom or death.faults or death.kernel or death.notices or death.texts or death.stack_texts or death.counters:
        return None
    if death.raised is not None or death.exceptions or death.xids or death.driver_notes or death.rebooted is not None:
        return None
    return (
        death.signal, death.code, death.host, death.worker, death.given, death.watched, death.alive, death.direct,
        death.first, death.ring is not None, death.traced, death.kernel_log_covers, death.initial_namespace,
        tuple((said.by, said.signal) for said in death.ended_by),
        tuple((one.sender_role, one.by_kernel, one.sent.signal, one.match.tie) for one in death.sent),
        tuple((one.sender_role, one.signal.number, one.signal.fatal, one.signal.code) for one in death.signals),
        death.died_together > 1, death.parent_died is not None,
    )  # fmt: skip


def _strongest_each(findings: list[tuple[Cause, Finding]]) -> list[tuple[Cause, Finding]]:
    """A cause that looked both at the record and at the rest speaks once, with the stronger answer."""
    order = list(Confidence)
    kept: dict[str, tuple[Cause, Finding]] = {}
    for cause, finding in findings:
        earlier = kept.get(cause.id)
        if earlier is None or order.index(finding.confidence) < order.index(earlier[1].confidence):
            kept[cause.id] = (cause, finding)
    return list(kept.values())


def _doubted(finding: Finding, doubts: Sequence[Cite]) -> Finding:
    """A record that contradicts itself proves nothing."""
    if not doubts:
        return finding
    confidence = Confidence.LIKELY if finding.confidence is Confidence.PROVEN else finding.confidence
    return msgspec.structs.replace(finding, confidence=confidence, against=[*finding.against, *doubts])

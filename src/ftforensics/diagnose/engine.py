"""`diagnose`: one case in, one diagnosis out. Pure but for the resolver it is given."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.advice import on_cuda, package_of
from ftforensics.causes.blame import blame
from ftforensics.causes.registry import Kind, causes, find_cause
from ftforensics.diagnose.contradictions import contradictions
from ftforensics.diagnose.crash import prepare
from ftforensics.diagnose.handlers import signal_owners
from ftforensics.diagnose.names import Resolver, module_offsets
from ftforensics.diagnose.stacks import merge, other_threads, python_groups, seen_from_outside
from ftforensics.diagnose.timeline import timeline
from ftforensics.diagnose.verdict import Weighed, weigh
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Case, Crash
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import (
    Confidence,
    Diagnosis,
    Event,
    Exit,
    Finding,
    ProcessReport,
    Remedy,
    SignalOwners,
    ThreadStack,
    Verdict,
)


class _Judged(msgspec.Struct, frozen=True):
    crash: Crash
    weighed: Weighed
    owners: list[SignalOwners]


def diagnose(case: Case, resolve: Resolver = module_offsets) -> Diagnosis:
    """The diagnosis of a case of crash records.

    Among several records the root is the earliest own fault; a process that another one ended is collateral of it.
    A case without records is undecided and says so.
    """
    judged = sorted((_judge(prepare(record, resolve), resolve) for record in case.records), key=_earliest)
    if not judged:
        verdict = Verdict("unknown", None, None, "undecided", "There is no crash record to look at.")
        return Diagnosis(verdict=verdict, gaps=list(case.gaps))
    root = judged[0]
    weighed = root.weighed
    remedies = list(weighed.best.remedies) if weighed.best else _settling(weighed.hypotheses)
    return Diagnosis(
        verdict=weighed.verdict,
        # The verdict's own evidence comes first: a reader of the report looks for it there.
        hypotheses=[weighed.best, *weighed.hypotheses] if weighed.best else weighed.hypotheses,
        processes=[_process(one, "root" if one is root else _role(one)) for one in judged],
        remedies=_distinct(remedies),
        gaps=_gaps(case.gaps, judged),
        timeline=_timeline(judged),
    )


def _judge(crash: Crash, resolve: Resolver) -> _Judged:
    doubts = contradictions(crash.record)
    findings = [
        (cause, _doubted(finding, doubts)) for cause in causes() if cause.check for finding in cause.check(crash)
    ]
    return _Judged(crash, weigh(crash, findings), signal_owners(crash.record, resolve))


def _doubted(finding: Finding, doubts: list[Cite]) -> Finding:
    """A record that contradicts itself proves nothing."""
    if not doubts:
        return finding
    confidence = Confidence.LIKELY if finding.confidence is Confidence.PROVEN else finding.confidence
    return msgspec.structs.replace(finding, confidence=confidence, against=[*finding.against, *doubts])


def _earliest(judged: _Judged) -> tuple[bool, float]:
    """Own faults before deaths by somebody else's signal; then by time."""
    time = judged.crash.record.time
    return (_ended_by_other(judged), time.realtime if time and time.realtime is not None else float("inf"))


def _ended_by_other(judged: _Judged) -> bool:
    best = judged.weighed.best
    cause = find_cause(best.cause) if best else None
    return cause is not None and cause.kind is Kind.KILLER


def _role(judged: _Judged) -> str:
    return "collateral" if _ended_by_other(judged) else "unknown"


def _ended_by(record: CrashRecord) -> str | None:
    """The signal in the wait status: the recorded one, but where Python was in the middle of its own abort()."""
    if record.end is not None and record.end.how == "abort":
        return "SIGABRT"
    return record.signal.name if record.signal else None


def _process(judged: _Judged, role: str) -> ProcessReport:
    crash, record = judged.crash, judged.crash.record
    process, job, phase = record.process, record.job, record.phase
    merged = merge(crash.native, crash.python, python_groups(record, crash.helper))
    if not crash.native:
        merged = seen_from_outside(record, crash.helper) or merged
    crashing = ThreadStack(process.tid if process else None, process.thread_name if process else None, True, merged)
    return ProcessReport(
        host=job.host if job else None,
        pid=process.pid if process else None,
        rank=job.rank if job else None,
        worker_of=process.fork_of if process else None,
        exit=Exit(signal=_ended_by(record)),
        role=role,
        phase=" > ".join(phase.names) if phase and phase.names else None,
        step=record.step,
        time=record.time.realtime if record.time else None,
        stack=merged,
        threads=[crashing, *other_threads(record, crash.helper)],
        record=crash.path,
        handlers=judged.owners,
    )


def _gaps(of_case: Sequence[Gap], judged: Sequence[_Judged]) -> list[Gap]:
    gaps = list(of_case)
    for one in judged:
        gaps += (gap for gap in one.crash.gaps if _concerns(gap, one.crash))
        if one.weighed.best is not None:
            gaps += one.weighed.best.unknown
        else:
            gaps += one.crash.reading.unknown
    return sorted(dict.fromkeys(gaps), key=_use)


def _concerns(gap: Gap, crash: Crash) -> bool:
    """The driver is no matter of a process without CUDA, nor a version that nothing here rests on."""
    if gap.grant is None and gap.source == "driver":
        return on_cuda(crash)
    if gap.grant is None and gap.source == "libraries":
        frame = blame(crash).frame
        return on_cuda(crash) or (frame is not None and package_of(crash, frame) is not None)
    return True


# What changes a verdict most often comes first.
_SOURCES = ("stderr", "symbols", "crash", "ptrace", "helper")


def _use(gap: Gap) -> tuple[bool, int]:
    """Gaps that somebody can do something about come first."""
    return gap.grant is None, _SOURCES.index(gap.source) if gap.source in _SOURCES else len(_SOURCES)


def _settling(hypotheses: Sequence[Finding]) -> list[Remedy]:
    """Nothing is sure enough to act upon; a test may still tell which it was."""
    return [
        remedy
        for finding in hypotheses
        if finding.confidence is not Confidence.RULED_OUT
        for remedy in finding.remedies
        if remedy.settles
    ]


def _distinct(remedies: Sequence[Remedy]) -> list[Remedy]:
    return list(dict.fromkeys(remedies))


def _timeline(judged: Sequence[_Judged]) -> list[Event]:
    several = len(judged) > 1
    events = []
    for one in judged:
        process = one.crash.record.process
        prefix = f"pid {process.pid}: " if several and process and process.pid is not None else ""
        events += [msgspec.structs.replace(event, text=prefix + event.text) for event in timeline(one.crash.record)]
    return sorted(events, key=lambda event: event.at)

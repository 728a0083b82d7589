"""`diagnose`: one case in, one diagnosis out. Pure but for the resolver it is given."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.advice import on_cuda, package_of
from ftforensics.causes.blame import blame
from ftforensics.causes.registry import Cause, Kind, causes, find_cause
from ftforensics.diagnose.attempts import latest_attempt
from ftforensics.diagnose.change_fit import strengthened
from ftforensics.diagnose.contradictions import contradictions
from ftforensics.diagnose.crash import prepare
from ftforensics.diagnose.deaths import build_deaths
from ftforensics.diagnose.handlers import signal_owners
from ftforensics.diagnose.memory import memory_history
from ftforensics.diagnose.names import Resolver, module_offsets
from ftforensics.diagnose.ring_view import last_second
from ftforensics.diagnose.roles import BYSTANDER, SIGKILL, STRANGER, is_consequence, sent_politely, significance
from ftforensics.diagnose.stacks import merge, other_threads, python_groups, seen_from_outside
from ftforensics.diagnose.timeline import events_of, events_of_run, timeline
from ftforensics.diagnose.verdict import Weighed, weigh
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Case, Crash
from ftforensics.model.death import Death
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
from ftforensics.model.ledger import Changes
from ftforensics.model.ring import Ring
from ftforensics.model.signals import signal_name


class _Judged(msgspec.Struct, frozen=True):
    death: Death
    weighed: Weighed
    owners: list[SignalOwners]
    consequence: bool = False
    significance: int = 0


def diagnose(case: Case, resolve: Resolver = module_offsets) -> Diagnosis:
    """The diagnosis of a case.

    Among several deaths the root is the earliest own failure; a process that ended because of another one is
    collateral of it. A case without any death is undecided and says so.
    """
    case = latest_attempt(case)
    crashes = [prepare(record, resolve) for record in case.records]
    judged = _ordered([_judge(death, resolve, case.changes) for death in build_deaths(case, crashes)])
    if not judged:
        return Diagnosis(verdict=_nothing_died(case), gaps=list(case.gaps), processes=[])
    first = judged[0]
    judged = [one for one in judged if _is_meant(one.death, case)]
    if not judged:
        summary = "Nothing here says how the process that is asked about ended."
        return Diagnosis(Verdict("unknown", None, None, "undecided", summary), gaps=list(case.gaps), processes=[])
    root = judged[0]
    if root.significance >= STRANGER and any(run.ended is not None and run.ended.code == 0 for run in case.runs):
        # A job also stops helpers of its own; what ended well is not explained by one of them.
        return Diagnosis(verdict=_nothing_died(case), gaps=list(case.gaps), processes=[])
    weighed = root.weighed
    named = [one.death for one in judged if one.death.from_kernel]
    others = case.left_out or any(log.lines for log in case.launcher_logs)
    unclaimed = len(named) > 1 or bool(named and others)
    if unclaimed:
        # Others' kills stand in a kernel log as well: nothing says which process is the job's.
        judged = judged[-1:] + judged[:-1]  # the latest is what one most likely asks about
        whose = _whose(named, bool(case.launcher_logs) and not case.left_out)
        weighed = Weighed(whose, _only_possible(judged[0].weighed), None)
    remedies = list(weighed.best.remedies) if weighed.best else _settling(weighed.hypotheses)
    if unclaimed:
        remedies = [Remedy("Say which process is the job's", "ftforensics analyze --pid PID FILE...", settles=True)]
    rings = [one.ring for one in case.rings]
    return Diagnosis(
        verdict=weighed.verdict,
        # The verdict's own evidence comes first: a reader of the report looks for it there.
        hypotheses=[weighed.best, *weighed.hypotheses] if weighed.best else weighed.hypotheses,
        processes=[_process(one, "root" if one is first and not unclaimed else _role(one), rings) for one in judged],
        remedies=_distinct(remedies),
        gaps=_gaps(case.gaps, judged),
        timeline=_timeline(judged, case),
        changes=case.changes,
    )


def _is_meant(death: Death, case: Case) -> bool:
    """Is it the process that the person asks about? Everything else was looked at to tell causes from consequences."""
    if case.given_pid is not None and case.given_pid not in (death.pid, *death.host_pids):
        return False
    return case.given_rank is None or case.given_rank == death.rank


def _only_possible(weighed: Weighed) -> list[Finding]:
    found = [one for one in (weighed.best, *weighed.hypotheses) if one is not None]
    sure = (Confidence.PROVEN, Confidence.LIKELY)
    return [
        msgspec.structs.replace(one, confidence=Confidence.POSSIBLE) if one.confidence in sure else one for one in found
    ]


def _whose(named: Sequence[Death], with_job: bool) -> Verdict:
    pids = ", ".join(f"{death.pid} ({death.comms[0]})" if death.comms else f"{death.pid}" for death in named[-3:])
    pids = f"the last ones {pids}" if len(named) > 3 else pids
    processes = "process" if len(named) == 1 else "processes"
    summary = f"The kernel's log names {len(named)} {processes} that it killed or that crashed ({pids}); "
    who = "the job's log names none of them" if with_job else "nothing says which is the job's"
    return Verdict("unknown", None, None, "undecided", f"{summary}{who}.")


def _judge(death: Death, resolve: Resolver, changes: Changes | None) -> _Judged:
    crash = death.crash
    doubts = contradictions(crash.record) if crash is not None else []
    findings = []
    for cause in causes():
        if cause.check is not None and crash is not None:
            findings += [(cause, _doubted(finding, doubts)) for finding in cause.check(crash)]
        if cause.check_death is not None:
            findings += [(cause, finding) for finding in cause.check_death(death)]
    owners = signal_owners(crash.record, resolve) if crash is not None else []
    findings = [(cause, strengthened(cause, finding, changes)) for cause, finding in _strongest_each(findings)]
    return _Judged(death, weigh(death, findings), owners)


def _strongest_each(findings: list[tuple[Cause, Finding]]) -> list[tuple[Cause, Finding]]:
    """A cause that looked both at the record and at the rest speaks once, with the stronger answer."""
    order = list(Confidence)
    kept: dict[str, tuple[Cause, Finding]] = {}
    for cause, finding in findings:
        earlier = kept.get(cause.id)
        if earlier is None or order.index(finding.confidence) < order.index(earlier[1].confidence):
            kept[cause.id] = (cause, finding)
    return list(kept.values())


def _nothing_died(case: Case) -> Verdict:
    if any(run.ended is not None and run.ended.code == 0 for run in case.runs):
        return Verdict("succeeded", None, None, "undecided", "The run ended well: status 0.")
    if case.rings:
        return Verdict("succeeded", None, None, "undecided", "The process ended well: its recorder was closed.")
    if case.kernel_logs or case.launcher_logs or case.notices or case.runs:
        return Verdict("unknown", None, None, "undecided", "Nothing here says that a process ended badly.")
    return Verdict("unknown", None, None, "undecided", "There is no crash record to look at.")


def _doubted(finding: Finding, doubts: list[Cite]) -> Finding:
    """A record that contradicts itself proves nothing."""
    if not doubts:
        return finding
    confidence = Confidence.LIKELY if finding.confidence is Confidence.PROVEN else finding.confidence
    return msgspec.structs.replace(finding, confidence=confidence, against=[*finding.against, *doubts])


def _ordered(judged: list[_Judged]) -> list[_Judged]:
    """The root first, then by time; consequences last, and bystanders only where there is nothing else."""
    deaths = [one.death for one in judged]
    marked = [
        msgspec.structs.replace(
            one,
            consequence=is_consequence(one.death, one.weighed.best, deaths),
            significance=significance(one.death, one.weighed.best, deaths),
        )
        for one in judged
    ]
    if any(one.significance < BYSTANDER for one in marked):
        marked = [one for one in marked if one.significance < BYSTANDER]
    # Every clock-bearing death needs the same clock to be compared by.
    wall = any(death.when.realtime is not None for death in deaths)
    explained = any(_is_killed_for_memory(one) for one in marked)
    return sorted(marked, key=lambda one: _precedence(one, wall, explained))


def _is_killed_for_memory(judged: _Judged) -> bool:
    best = judged.weighed.best
    return best is not None and best.confidence is not Confidence.POSSIBLE and _is_memory_killer(best)


def _is_memory_killer(finding: Finding) -> bool:
    cause = find_cause(finding.cause)
    return cause is not None and cause.family == "memory" and cause.kind is Kind.KILLER


def _precedence(
    judged: _Judged, wall: bool, explained: bool
) -> tuple[bool, int, bool, bool, bool, float, bool, bool, int]:
    death, best = judged.death, judged.weighed.best
    time = death.when.realtime if wall else death.when.monotonic
    return (
        judged.consequence,
        judged.significance,
        sent_politely(death, best),
        _taken_along(judged),
        time is None and _ends_unseen(death) and (best is None or best.confidence is Confidence.POSSIBLE),
        time if time is not None else float("inf"),
        # Of two SIGKILLs the one that the kernel explains has the better claim, whichever the launcher noticed first.
        explained and death.signal == SIGKILL and not _is_killed_for_memory(judged),
        not death.first,
        list(Confidence).index(best.confidence) if best is not None else len(Confidence),
    )


def _taken_along(judged: _Judged) -> bool:
    """A member of a group kill dies with the chosen one, which is the root."""
    best = judged.weighed.best
    return best is not None and best.cause == "oom-group-kill"


def _ends_unseen(death: Death) -> bool:
    return death.signal is None and death.code is None


def _role(judged: _Judged) -> str:
    if judged.consequence or sent_politely(judged.death, judged.weighed.best) or _taken_along(judged):
        return "collateral"
    return "unknown"


def _process(judged: _Judged, role: str, rings: Sequence[Ring]) -> ProcessReport:
    death = judged.death
    base = _of_crash(judged, death.crash) if death.crash is not None else _of_death(death)
    return msgspec.structs.replace(
        base,
        exit=_exit(death, judged.weighed),
        role=role,
        rank=death.rank if base.rank is None else base.rank,
        comm=death.comms[0] if death.comms else None,
        ring=death.ring_path,
        alive=death.alive,
        worker=death.worker,
        memory=memory_history(death, rings),
        last_second=last_second(death),
        by=_ended_by(death),
    )


def _exit(death: Death, weighed: Weighed) -> Exit:
    """What a parent saw, or what the verdict says where nobody did: the kernel's OOM killer has one signal only."""
    if _ends_unseen(death) and death.oom and weighed.best is not None and _is_memory_killer(weighed.best):
        return Exit(signal="SIGKILL")
    return Exit(signal=signal_name(death.signal) if death.signal is not None else None, code=death.code)


def _of_crash(judged: _Judged, crash: Crash) -> ProcessReport:
    record = crash.record
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
        exit=Exit(),
        role="unknown",
        phase=" > ".join(phase.names) if phase and phase.names else None,
        step=record.step,
        time=record.time.realtime if record.time else None,
        stack=merged,
        threads=[crashing, *other_threads(record, crash.helper)],
        record=crash.path,
        handlers=judged.owners,
    )


def _of_death(death: Death) -> ProcessReport:
    ring = death.ring
    return ProcessReport(
        host=death.host,
        pid=death.pid,
        rank=death.rank,
        worker_of=death.worker_of,
        exit=Exit(),
        role="unknown",
        phase=ring.phase if ring else None,
        step=ring.step if ring else None,
        time=death.when.realtime,
    )


def _ended_by(death: Death) -> str | None:
    """Who sent the signal that ended it, as far as somebody says: "17987 (torchrun)"."""
    for sent in death.sent:
        if not sent.by_kernel and sent.sent.signal == death.signal:
            pid = sent.sent.sender_pid if sent.sent.sender_pid is not None else sent.sent.sender_tid
            return f"{pid} ({sent.sent.sender_comm})"
    for seen in reversed(death.signals):
        if seen.signal.number == death.signal and seen.signal.sender is not None:
            name = f" ({seen.sender_comm})" if seen.sender_comm else ""
            return f"{seen.signal.sender.pid}{name}"
    return death.ended_by[0].by if death.ended_by else None


def _gaps(of_case: Sequence[Gap], judged: Sequence[_Judged]) -> list[Gap]:
    gaps = list(of_case)
    for one in judged:
        crash = one.death.crash
        gaps += one.death.gaps
        if crash is not None:
            gaps += (gap for gap in crash.gaps if _concerns(gap, crash))
        if one.weighed.best is not None:
            gaps += one.weighed.best.unknown
        else:
            gaps += one.death.reading.unknown
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


def _timeline(judged: Sequence[_Judged], case: Case) -> list[Event]:
    several = len(judged) > 1
    events = []
    for one in judged:
        death = one.death
        prefix = f"pid {death.pid}: " if several and death.pid is not None else ""
        found = [*(timeline(death.crash.record) if death.crash else []), *events_of(death)]
        events += [msgspec.structs.replace(event, text=prefix + event.text) for event in found]
    events += [event for run in case.runs for event in events_of_run(run)]
    return sorted(events, key=lambda event: event.at)

"""`diagnose`: one case in, one diagnosis out. Pure but for the resolver it is given."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.advice import on_cuda, package_of
from ftforensics.causes.blame import blame
from ftforensics.causes.ranks import ranks_text
from ftforensics.diagnose.attempts import MOST_ATTEMPTS, in_one_line, several_jobs, split
from ftforensics.diagnose.collectives import with_behind
from ftforensics.diagnose.crash import prepare
from ftforensics.diagnose.deaths import build_deaths
from ftforensics.diagnose.first_failure import in_order, is_alike, is_taken_along
from ftforensics.diagnose.judge import Judge, Judged, Spread, at_once
from ftforensics.diagnose.missing import with_missing
from ftforensics.diagnose.names import Resolver, module_offsets
from ftforensics.diagnose.process_report import report_of
from ftforensics.diagnose.roles import STRANGER, sent_politely, waited_in_vain
from ftforensics.diagnose.timeline import timeline_of
from ftforensics.diagnose.verdict import Weighed
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseException, CaseRecord, CaseRing, Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Diagnosis, Finding, Remedy, Verdict
from ftforensics.model.launcher import LauncherLog
from ftforensics.model.run import RunEvidence

MOST_DETAILED = 64  # processes with their memory and last second: a rank beyond has the story of its equals
_AGAIN = "The job was started again after its last failure; nothing here says how that ended."


def diagnose(case: Case, resolve: Resolver = module_offsets, spread: Spread = at_once) -> Diagnosis:
    """The diagnosis of a case: its last attempt in full, the earlier ones in a line each.

    Among several deaths the root is the earliest own failure; a process that ended because of another one is
    collateral of it. A case without any death is undecided and says so.
    """
    *earlier, last = split(_in_one_order(case))
    diagnosis = _diagnose_attempt(last.case, resolve, spread)
    if not earlier:
        return diagnosis
    attempts = [in_one_line(one, _diagnose_attempt(one.case, resolve, spread)) for one in earlier[-MOST_ATTEMPTS:]]
    gaps = diagnosis.gaps
    if len(earlier) > MOST_ATTEMPTS:
        gaps = [*gaps, Gap("case", f"{len(earlier) - MOST_ATTEMPTS} still earlier attempts were not looked at")]
    verdict = diagnosis.verdict
    if verdict.outcome == "unknown" and not diagnosis.processes:
        verdict = msgspec.structs.replace(verdict, summary=_AGAIN)
    return msgspec.structs.replace(diagnosis, verdict=verdict, attempts=attempts, gaps=gaps)


def _in_one_order(case: Case) -> Case:
    """The same files get the same answer, in whatever order they were named."""
    return msgspec.structs.replace(
        case,
        records=sorted(case.records, key=_path),
        rings=sorted(case.rings, key=_path),
        exceptions=sorted(case.exceptions, key=_path),
        runs=sorted(case.runs, key=_path),
        launcher_logs=sorted(case.launcher_logs, key=_path),
    )


def _path(one: CaseRecord | CaseRing | CaseException | RunEvidence | LauncherLog) -> str:
    return one.path or ""


def _diagnose_attempt(case: Case, resolve: Resolver, spread: Spread) -> Diagnosis:
    if (several := several_jobs(case)) is not None:
        case = msgspec.structs.replace(case, gaps=[*case.gaps, several])
    crashes = [prepare(record, resolve) for record in case.records]
    deaths = with_behind(with_missing(build_deaths(case, crashes), case), case.launcher_logs)
    judge = Judge(resolve, case.changes, deaths=len(deaths))
    order = in_order(judge.judge_all(deaths, spread))
    if not order.judged:
        return Diagnosis(verdict=_nothing_died(case), gaps=list(case.gaps), processes=[])
    first = order.judged[0]
    judged = [one for one in order.judged if _is_meant(one.death, case)]
    if not judged:
        summary = "Nothing here says how the process that is asked about ended."
        return Diagnosis(Verdict("unknown", None, None, "undecided", summary), gaps=list(case.gaps), processes=[])
    if judged[0].significance >= STRANGER and _ended_well(case):
        # A job also stops helpers of its own; what ended well is not explained by one of them.
        return Diagnosis(verdict=_nothing_died(case), gaps=list(case.gaps), processes=[])
    judged = [judge.again(judged[0]), *judged[1:]]
    weighed = judged[0].weighed
    named = [one.death for one in judged if one.death.from_kernel]
    others = case.left_out or any(log.lines for log in case.launcher_logs)
    unclaimed = len(named) > 1 or bool(named and others)
    rivals = [] if judged[0].death is not first.death else order.rivals
    rivals = [*map(judge.again, rivals[:MOST_DETAILED]), *rivals[MOST_DETAILED:]]
    if unclaimed:
        # Others' kills stand in a kernel log as well: nothing says which process is the job's.
        judged = judged[-1:] + judged[:-1]  # the latest is what one most likely asks about
        whose = _whose(named, bool(case.launcher_logs) and not case.left_out, bool(case.of_other_attempts))
        weighed = Weighed(whose, _only_possible(judged[0].weighed), None)
    elif not all(is_alike(rivals[0], other) for other in rivals):
        weighed = Weighed(_which_first(rivals), _of_rivals(rivals), None)
    elif judged[0].consequence is not None and weighed.best is None:
        weighed = Weighed(_nobody_here(judged, weighed), weighed.hypotheses, None)
    remedies = list(weighed.best.remedies) if weighed.best else _settling(weighed.hypotheses)
    if unclaimed:
        remedies = [Remedy("Say which process is the job's", "ftforensics analyze --pid PID FILE...", settles=True)]
    rings = [one.ring for one in case.rings]
    root = order.root.death if order.root is not None and not unclaimed else None
    return Diagnosis(
        verdict=weighed.verdict,
        # The verdict's own evidence comes first: a reader of the report looks for it there.
        hypotheses=[weighed.best, *weighed.hypotheses] if weighed.best else weighed.hypotheses,
        processes=[
            report_of(one, _role(one, root), rings, detailed=number < MOST_DETAILED)
            for number, one in enumerate(judged)
        ],
        remedies=_distinct(remedies),
        gaps=_gaps(case.gaps, judged),
        timeline=timeline_of([one.death for one in judged], case),
        changes=case.changes,
        world_size=first.death.world_size,
        missing=first.death.missing,
        missing_on=first.death.missing_on,
    )


def _ended_well(case: Case) -> bool:
    return any(run.ended is not None and run.ended.code == 0 for run in case.runs)


def _which_first(rivals: Sequence[Judged]) -> Verdict:
    names = [_name(one.death) for one in rivals]
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    summary = f"{listed} failed each on its own; nothing here says which was first."
    return Verdict("failed", None, None, "undecided", summary)


def _nobody_here(judged: Sequence[Judged], weighed: Weighed) -> Verdict:
    """Victims only."""
    reason = judged[0].consequence
    said = f" ({reason.text[:120]})" if reason is not None and reason.text else ""
    who = "It ended" if len(judged) == 1 else "Every process here ended"
    missing = judged[0].death.missing
    where = ", ".join(judged[0].death.missing_on[:3])
    look = f"; nothing is known here of {ranks_text(missing)}" if missing else ""
    look += f" on {where}" if missing and where else ""
    summary = f"{who} because of another process, which is not in this input{said}{look}."
    return msgspec.structs.replace(weighed.verdict, summary=summary)


def _name(death: Death) -> str:
    if death.rank is not None and not death.worker:
        return f"rank {death.rank}"
    return f"pid {death.pid}" if death.pid is not None else "a process"


def _of_rivals(rivals: Sequence[Judged]) -> list[Finding]:
    """What each of them failed of: sure about itself, not about the job."""
    found = [finding for one in rivals for finding in _only_possible(one.weighed)[:1]]
    return list({(one.cause, one.summary): one for one in found}.values())


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


def _whose(named: Sequence[Death], with_job: bool, again: bool) -> Verdict:
    """again: the job was started again, and its log says nothing of an end after that."""
    pids = ", ".join(f"{death.pid} ({death.comms[0]})" if death.comms else f"{death.pid}" for death in named[-3:])
    pids = f"the last ones {pids}" if len(named) > 3 else pids
    processes = "process" if len(named) == 1 else "processes"
    summary = f"The kernel's log names {len(named)} {processes} that it killed or that crashed ({pids}); "
    who = "the job's log names none of them" if with_job else "nothing says which is the job's"
    return Verdict("unknown", None, None, "undecided", f"{_AGAIN + ' ' if again else ''}{summary}{who}.")


def _nothing_died(case: Case) -> Verdict:
    if any(run.ended is not None and run.ended.code == 0 for run in case.runs):
        return Verdict("succeeded", None, None, "undecided", "The run ended well: status 0.")
    if case.rings:
        return Verdict("succeeded", None, None, "undecided", "The process ended well: its recorder was closed.")
    if case.kernel_logs or case.launcher_logs or case.notices or case.runs:
        return Verdict("unknown", None, None, "undecided", "Nothing here says that a process ended badly.")
    return Verdict("unknown", None, None, "undecided", "There is no crash record to look at.")


def _role(judged: Judged, root: Death | None) -> str:
    best = judged.weighed.best
    if judged.death is root:
        return "root"
    if waited_in_vain(best):
        return "victim"
    if judged.consequence is not None or is_taken_along(judged):
        return "collateral"
    return "collateral" if root is not None and sent_politely(judged.death, best) else "unknown"


def _gaps(of_case: Sequence[Gap], judged: Sequence[Judged]) -> list[Gap]:
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

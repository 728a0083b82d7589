"""One run folder, several attempts: a job that is started again where the folder's name is fixed."""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.case import Case
from ftforensics.model.run import RunEvidence


def latest_attempt(case: Case) -> Case:
    """The case without the runs that were over when the last one began, and without what is left of their processes.
    Runs at the same time (one a node or a rank) stay: their ends may be one story."""
    if case.given_pid is not None:
        return case
    finished = [run for run in case.runs if run.ended is not None and run.started is not None]
    earlier = [run for run in finished if any(_was_over(run, other) for other in finished)]
    if not earlier:
        return case
    ended = {(died.pid, died.start_ticks) for run in earlier for died in run.died}
    paths = [run.path for run in earlier if run.path]
    logs = [path.removesuffix("evidence.jsonl") + "launcher.log" for path in paths]
    return msgspec.structs.replace(
        case,
        records=[
            one
            for one in case.records
            if one.record.process is None or (one.record.process.pid, one.record.process.start_ticks) not in ended
        ],
        rings=[one for one in case.rings if (one.ring.process.pid, one.ring.process.start_ticks) not in ended],
        runs=[run for run in case.runs if run not in earlier],
        kernel_logs=[log for log in case.kernel_logs if log.path not in paths],
        launcher_logs=[log for log in case.launcher_logs if log.path not in logs],
        gaps=[*case.gaps, *(_left_out(path) for path in paths)],
    )


def _left_out(path: str) -> Gap:
    why = f"{path} is of an earlier attempt, which was over when the last one began: left out"
    return Gap("run", why, f"ftforensics analyze {path}")


def _was_over(run: RunEvidence, later: RunEvidence) -> bool:
    """Of the same place in the job: a rank that failed before its sibling had begun is no earlier attempt."""
    one, other, ended = run.started, later.started, run.ended
    if one is None or other is None or ended is None:
        return False
    if one.host != other.host or one.environment != other.environment:
        return False
    if one.boot_id != other.boot_id:
        return ended.clocks.realtime < other.clocks.realtime
    return ended.clocks.monotonic < other.clocks.monotonic

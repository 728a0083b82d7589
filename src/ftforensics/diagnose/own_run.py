"""Two jobs of the same time in one run folder: what belongs to one of them.

A folder that is fixed ($FTFORENSICS_DIR, `run --dir`) takes whatever runs there. Runs with different ranks in their
surroundings are one job (srun starts one `run` a rank); runs with the same surroundings are two.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.case import Case
from ftforensics.model.crash import Process
from ftforensics.model.run import RunEvidence


def of_own_run(case: Case, path: str) -> Case:
    """The case without what other jobs left in the folder. path: of this run's evidence file. What no run saw end (a
    recorder's ring of a process that was not waited for) stays: it may be this one's."""
    own = next((run for run in case.runs if run.path == path), None)
    others = [run for run in case.runs if own is not None and run is not own and _is_another_job(run, own)]
    if own is None or not others:
        return case
    theirs = {(died.pid, died.start_ticks) for run in others for died in run.died}
    paths = {run.path for run in others if run.path is not None}
    logs = {one.removesuffix("evidence.jsonl") + "launcher.log" for one in paths}
    return msgspec.structs.replace(
        case,
        records=[one for one in case.records if _key(one.record.process) not in theirs],
        exceptions=[one for one in case.exceptions if _key(one.record.process) not in theirs],
        rings=[one for one in case.rings if (one.ring.process.pid, one.ring.process.start_ticks) not in theirs],
        runs=[run for run in case.runs if run.path not in paths],
        kernel_logs=[log for log in case.kernel_logs if log.path not in paths],
        launcher_logs=[log for log in case.launcher_logs if log.path not in logs],
    )


def _is_another_job(run: RunEvidence, own: RunEvidence) -> bool:
    """Of the same place in a job, at the same time: no job has a place twice. One that was over before is an earlier
    attempt."""
    if run.started is None or own.started is None or run.started.boot_id != own.started.boot_id:
        return False
    if run.started.environment != own.started.environment:
        return False
    began = own.started.clocks.monotonic
    return run.ended is None or run.ended.clocks.monotonic > began


def _key(process: Process | None) -> tuple[int | None, int | None]:
    return (process.pid, process.start_ticks) if process is not None else (None, None)

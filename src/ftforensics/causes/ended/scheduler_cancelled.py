"""The job was cancelled.

## What it means

Somebody cancelled the job with the scheduler's own command, or the scheduler did because a part of it had failed. All
processes get SIGTERM, then SIGKILL.

## How it is told apart

The scheduler says so: "CANCELLED AT ..." without a reason in the job's output, or the state "CANCELLED by UID" in its
accounting. It is proven only when the accounting names who cancelled this process's job and its end follows: the bare
line is also printed when Slurm takes down a step after one of its tasks has failed, so that it is likely at most. Where
the scheduler gives a reason (time limit, preemption, a lost node, memory), that cause speaks instead.

## What to do

1. Ask who cancelled it: `sacct` shows the uid.
2. If nobody did, look for the task that failed first: with `--kill-on-bad-exit` Slurm cancels the step then.

## Seen in the field

- "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT ... ***" behind the first failing rank of `srun`.

## References

- man 1 scancel; man 1 sacct (State); man 1 srun (--kill-on-bad-exit)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import has_said, statement
from ftforensics.causes.ending import weaker
from ftforensics.causes.registry import Kind
from ftforensics.causes.scheduler import name_of
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

KIND = Kind.KILLER
_BETTER = ("time-limit", "deadline", "preempted", "requeued", "node-failed", "oom", "evicted", "stopped")


def check_death(death: Death) -> Iterator[Finding]:
    said = statement(death, ("slurm", "kubernetes"), "cancelled")
    if said is None:
        return
    if has_said(death, said.notice.authority, *_BETTER):
        return
    # "by 1000" is the accounting's word for who did it; other reasons name nobody.
    by = said.notice.reason if said.notice.reason and said.notice.reason.startswith("by ") else None
    unit = f" {said.notice.unit}" if said.notice.unit else ""
    yield Finding(
        cause="scheduler-cancelled",
        confidence=said.confidence if by else weaker(said.confidence, Confidence.LIKELY),
        summary=f"{name_of(said.notice.authority)} cancelled the job{unit}{f' ({by})' if by else ''}.",
        supports=said.supports,
        against=said.against,
        remedies=[
            Remedy(
                "See who cancelled it, and which step failed first",
                f"sacct -j{unit.partition('.')[0] or ' JOBID'} -o JobID,State,ExitCode,End",
                settles=True,
            )
        ],
    )

"""The scheduler took the job's resources for another one.

## What it means

A job of higher priority needed the nodes, and the site's rules allow taking them. The scheduler sends SIGTERM, waits
for a grace time, then sends SIGKILL, and may queue the job again.

## How it is told apart

The scheduler says so: "CANCELLED AT ... DUE TO PREEMPTION" or "DUE TO JOB REQUEUE", the state PREEMPTED or REQUEUED in
its accounting, or the reason of a pod. It is proven when that is this process's job, its end follows within the grace
time, and nothing speaks against it; otherwise likely.

## What to do

1. Let the job handle the warning signal: save, and end with a status that requeues it.
2. Run where jobs are not preempted, or ask for a partition with a longer grace time.

## Seen in the field

- Jobs in a "scavenger" or spot partition that end after minutes or days, always with SIGTERM before.

## References

- Slurm documentation, "Preemption"; man 1 sbatch (--requeue)
- Kubernetes documentation, "Pod Priority and Preemption"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import has_said
from ftforensics.causes.ending import rank_of
from ftforensics.causes.registry import Kind
from ftforensics.causes.scheduler import decided
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy

KIND = Kind.KILLER
_ID = "scheduler-preempted"


def check_death(death: Death) -> Iterator[Finding]:
    # A job is also queued again after its time limit, or when its node is lost.
    if has_said(death, "slurm", "time-limit", "node-failed"):
        return iter(())
    remedies = [
        Remedy("Let the job save at the warning signal and be queued again", "sbatch --requeue --signal=B:USR1@120")
    ]
    found = [
        *decided(death, _ID, ("preempted",), "took the job's resources for another one", remedies),
        *decided(death, _ID, ("requeued",), "ended the job to queue it again", remedies),
    ]
    return iter(sorted(found, key=lambda one: rank_of(one.confidence))[:1])

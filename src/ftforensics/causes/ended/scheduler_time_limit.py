"""The scheduler ended the job at its time limit.

## What it means

The job ran as long as it had asked for. Slurm then sends SIGTERM to all its processes and SIGKILL after KillWait (30
seconds by default); Kubernetes does the same to a job beyond its `activeDeadlineSeconds`, systemd to a unit beyond its
RuntimeMaxSec.

## How it is told apart

The scheduler says so: "CANCELLED AT ... DUE TO TIME LIMIT" in the job's output, the state TIMEOUT or DEADLINE in its
accounting. It is proven when that is this process's job, its end follows within the grace time, and nothing speaks
against it. It is likely when the line was only handed over with the process's traces, or the process ended with a
status of its own after SIGTERM. A process that had ended before is not explained by it.

## What to do

1. Ask for more time, or let the script save and requeue itself: `#SBATCH --signal=B:USR1@300 --requeue`.
2. Save often enough that what is lost between two checkpoints does not matter.

## Seen in the field

- A job that ends with -9 in the middle of a step, exactly a day after it began.

## References

- man 1 sbatch (--time, --signal); man 5 slurm.conf (KillWait, OverTimeLimit)
- Kubernetes documentation, "Jobs" (activeDeadlineSeconds)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.scheduler import decided
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    return decided(
        death,
        "scheduler-time-limit",
        ("time-limit", "deadline"),
        "ended the job at its time limit",
        [Remedy("Ask for more time, or let the job save and requeue itself before", "sbatch --signal=B:USR1@300 ...")],
    )

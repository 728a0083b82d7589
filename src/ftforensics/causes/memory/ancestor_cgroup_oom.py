"""The kernel killed the process: a memory limit above its own job or container was reached.

## What it means

Control groups form a tree, and every one of them may have a limit. Here the one that was reached belongs neither to the
job's own group nor to its container or unit, but to a group above: a user's slice, a pod around several containers, a
node's slice for all jobs. Neighbours below the same limit count too, so the job's own usage may look harmless.

## How it is told apart

It is proven when the kernel's line names this process by its exact pid and the group whose limit was reached
(`oom_memcg`) lies above the job's own unit. It is likely when `oom_kill` rose in the own group, `oom` did not, and
`oom` rose in a group above; when the kernel's line fits by name, user, sizes and time only; or when a group above was
97 % full at a look at most two seconds before. The job's unit is a Slurm job, a pod, a container, a systemd unit or the
group that `ftforensics run` was started in; with none of them any group above the process's own counts.

## What to do

1. Look at the usage of the group that the summary names, and at what else runs below it.
2. Raise that limit, or move the job out of it; raising the job's own limit changes nothing.

## Seen in the field

- A session's slice limits all of a user's programs on a login node; the editor's language server is one of them.
- A pod's limit that a sidecar or an emptyDir of medium Memory fills.

## References

- Linux Documentation/admin-guide/cgroup-v2.rst (memory.events and memory.events.local); mm/memcontrol.c
- man 5 systemd.resource-control (MemoryMax)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.oom import ANCESTOR, Weighed, findings, limit_text
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    return findings(death, ANCESTOR, _summary, _remedies, "No memory limit above the job ended it.")


def _summary(death: Death, weighed: Weighed) -> str:
    return f"Killed by the kernel: {limit_text(death, weighed)}, above this job's own group, was reached."


def _remedies(_death: Death, weighed: Weighed) -> list[Remedy]:
    where = weighed.limit_group or "the groups above the job's own"
    return [
        Remedy(f"Raise the limit of {where}, or run the job outside of it: its own limit was not what ended it"),
        Remedy(f"Look at what else counts against {where}", "systemd-cgtop -m -n 1", settles=True),
    ]

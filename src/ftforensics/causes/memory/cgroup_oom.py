"""The kernel killed the process: the memory limit of its own job or container was reached.

## What it means

The job runs in a control group with a memory limit: a Slurm job, a container or pod, a systemd unit. When the
processes in it together wanted more than that, the kernel chose one of them and ended it with SIGKILL. No handler runs
and no Python error appears; the exit status is -9, or 137 where a shell or a container runtime reports it. The machine
may have had plenty of memory left.

## How it is told apart

It is proven by the kernel's line "Memory cgroup out of memory: Killed process ..." that names this process by its
exact pid, with the limit of its own group or unit, and nothing against it. It is likely when the line fits by name,
user, sizes and time and fits no other process; when the group's own count of killed members rose over the end (it
does not say which member it was); when Slurm, Kubernetes or Docker counted an OOM kill in this unit and one process
of it was killed; or when a look at most two seconds before the end found 97 % of the limit in use that was not page
cache. A curve that would have passed the limit by then is only possible. The exit status alone says nothing:
everybody who may send a signal can send SIGKILL.

It is ruled out when the counters did not move over the death, or the whole kernel log is there and names no such kill.
A line that a program wrote through /dev/kmsg, a kill of another process, or a line that the counters contradict never
proves it.

## What to do

1. Request more memory: what was in use when the limit was reached, divided by 0.8.
2. Or use less: fewer data-loading workers, a smaller prefetch, a checkpoint that one rank writes.
3. Look at who held the memory. The kernel kills who holds most when it acts, and in a group of equal ranks that is
   chance.

## Seen in the field

- A checkpoint that every rank assembles in host memory before one of them writes it.
- DataLoader workers whose copy of the dataset grows by reference counts, until one of them is killed.
- Files on /dev/shm and in an emptyDir of medium Memory, which count against the container.

## References

- Linux Documentation/admin-guide/cgroup-v2.rst, memory.events; cgroup-v1/memory.rst, memory.oom_control
- Linux mm/oom_kill.c, mm/memcontrol.c
- Slurm documentation, cgroup.conf; Kubernetes documentation, "Assign Memory Resources to Containers"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.oom import CGROUP, Weighed, findings, limit_text, remedies
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    return findings(death, CGROUP, _summary, remedies, "The job's own memory limit did not end it.")


def _summary(death: Death, weighed: Weighed) -> str:
    if weighed.rests_on == "enforced":
        return f"Killed by Slurm: {limit_text(death, weighed)} was passed."
    return f"Killed by the kernel: {limit_text(death, weighed)} was reached."

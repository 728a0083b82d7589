"""The kernel killed the process together with its group, for another one's memory.

## What it means

The control group has `memory.oom.group` set: when the kernel kills one of its processes for want of memory, it kills
all the others with it. This process was not the chosen one. Kubernetes sets this for containers on cgroup version 2.

## How it is told apart

The kernel announces the group and then writes a line "Killed process" for each member; the first one is the chosen
process. It is proven when one of the others names this process by its exact pid, and likely when it fits by name,
user, sizes and time. That the counter `oom_group_kill` rose and several processes died at once is only possible: the
counter does not say who was chosen.

## What to do

1. Look at the chosen process: why that one was killed is the question.
2. Where the rest of the job could have gone on without it, unset `memory.oom.group`.

## Seen in the field

- A DataLoader worker that takes all ranks of a pod with it, and the supervisor too.

## References

- Linux Documentation/admin-guide/cgroup-v2.rst, memory.oom.group; mm/oom_kill.c, oom_kill_memcg_member
- Kubernetes 1.28 release notes; kubelet's `singleProcessOOMKill`
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import is_killed
from ftforensics.causes.oom import GROUP, Weighed, findings
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    found = list(findings(death, GROUP, _summary, _remedies, "No kill of a whole group ended it."))
    yield from found or _by_counter(death)


def _summary(_death: Death, weighed: Weighed) -> str:
    group = weighed.kill.group_kill if weighed.kill is not None else None
    return f"Killed by the kernel together with {group or 'its group'}, for the memory of another process of it."


def _remedies(_death: Death, weighed: Weighed) -> list[Remedy]:
    group = weighed.kill.group_kill if weighed.kill is not None else None
    path = f"/sys/fs/cgroup{group}/memory.oom.group" if group else "memory.oom.group"
    return [
        Remedy("Look at the process that was chosen: its end explains this one"),
        Remedy("If the others can go on without it, let the kernel kill single processes", f"echo 0 > {path}"),
    ]


def _by_counter(death: Death) -> Iterator[Finding]:
    """The group was killed; whether this one was chosen, nobody says."""
    rose = [one for one in death.counters if one.counter == "oom_group_kill" and one.own and one.delta > 0]
    if not rose or death.oom or death.alive or not is_killed(death) or death.died_together < 2:
        return
    yield Finding(
        cause="oom-group-kill",
        confidence=Confidence.POSSIBLE,
        summary="Its whole group was killed by the kernel; whether this process was the chosen one is not known.",
        supports=[one.cite for one in rose],
    )

"""The process was taken along by the end of its parent.

## What it means

A process can ask the kernel for a signal at the end of its parent (PR_SET_PDEATHSIG); many launchers and pools do so
for their children, so that none is left behind. When the first process of a pid namespace ends, the kernel kills all
others in it. Either way this process is a consequence: the parent's end is the question.

## How it is told apart

The parent was gone at most a second before, and SIGKILL, SIGTERM or SIGINT ended this process. It is likely when a
tracer or the recorder saw the signal come from the parent at its end (that is how the kernel shows PR_SET_PDEATHSIG),
or from the kernel itself where counters exclude a kill for want of memory. Two ends close together are only possible:
whatever ended the parent may have ended the child too. It is never proven: a parent may also send a signal and then
end.

## What to do

1. Look at why the parent ended: that is the first failure.

## Seen in the field

- Workers of a process pool behind a launcher that ran out of memory.
- Everything in a container whose first process, a shell script, ended.

## References

- man 2 PR_SET_PDEATHSIG; man 7 pid_namespaces; Linux kernel/exit.c, reparent_leader
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import (
    SIGKILL,
    SIGTERM,
    last_signal,
    seconds_before_end,
    senders,
    sent_by_kernel,
    signal_of,
)
from ftforensics.causes.oom import exclusions
from ftforensics.causes.registry import Kind
from ftforensics.causes.sizes import time_text
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.signals import signal_name

KIND = Kind.KILLER
_AT_ONCE = 1.0  # seconds
_PARENTS = ("parent", "launcher")


def check_death(death: Death) -> Iterator[Finding]:
    number = signal_of(death)
    if death.alive or death.parent_died is None or number not in (2, SIGKILL, SIGTERM):
        return
    before = seconds_before_end(death, death.parent_died)
    if before is None or not 0 <= before <= _AT_ONCE + death.when.accuracy:
        return
    sent = list(senders(death))
    noted = last_signal(death)
    if any(one.sender_role not in _PARENTS for one in sent):
        return
    signs: list[Cite] = [one.cite for one in sent]
    if noted is not None and noted.sender_role == "parent":
        signs.append(noted.cite)
    by_kernel, excluded = sent_by_kernel(death), exclusions(death)
    if by_kernel is not None and excluded:
        signs += [by_kernel.cite, *excluded]
    text = f"the parent had ended {time_text(before)} before"
    parent = death.parent_cite or Cite("run", "", text)
    against = [one.cite for one in death.oom]
    yield Finding(
        cause="parent-died",
        confidence=Confidence.LIKELY if signs and not against else Confidence.POSSIBLE,
        summary=f"Ended by {signal_name(number)} {time_text(before)} after its parent had ended.",
        supports=[parent, *signs, *death.ending],
        against=against,
        remedies=[Remedy("Look at why the parent ended: this process was only taken along")],
    )

"""The kernel killed the process: the whole machine was out of memory.

## What it means

All programs on the machine together, with its page tables and shared memory, used what there is, and swap was full or
absent. The kernel then ends the process that holds most. That need not be the one that grew: another job on the same
node can be the reason.

## How it is told apart

It is proven by the kernel's line "Out of memory: Killed process ..." that names this process by its exact pid, with no
constraint in the block around it, and nothing against it. It is likely when that line fits by name, user, sizes and
time only; when the group's `oom_kill` rose, but no limit of a group was reached; or when a look at most two seconds
before the end found less than 3 % of the machine's memory available. The machine's counter in /proc/vmstat counts
every OOM kill on it, also that of a stranger: that it rose alone proves nothing, that it did not rise rules this out.

## What to do

1. Find out what else ran on the machine, and who held the memory.
2. Run fewer ranks or workers on the machine, or take one with more memory.
3. Give the job a memory limit of its own (Slurm's --mem, docker run --memory): it is then the job that notices, not
   the machine.

## Seen in the field

- Optimizer offload to host memory that was computed for an idle machine.
- Every rank loads the whole checkpoint at the same time.
- /dev/shm left full by a run that died before.

## References

- Linux mm/oom_kill.c; Documentation/admin-guide/sysctl/vm.rst; man 5 proc_meminfo (MemAvailable)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.oom import HOST, Weighed, findings, remedies
from ftforensics.causes.registry import Kind
from ftforensics.causes.sizes import size_text
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    return findings(death, HOST, _summary, remedies, "The machine did not run out of memory.")


def _summary(_death: Death, weighed: Weighed) -> str:
    total = f" ({size_text(weighed.pressure.limit)})" if weighed.pressure is not None else ""
    return f"Killed by the kernel: the whole machine{total} was out of memory."

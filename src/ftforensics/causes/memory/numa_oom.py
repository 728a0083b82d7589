"""The kernel killed the process: the memory nodes it was bound to were full.

## What it means

The process, or its cpuset, may take memory from some of the machine's NUMA nodes only. Those were full while others
still had room, and the kernel killed it rather than take memory from elsewhere.

## How it is told apart

Only the kernel says it: `constraint=CONSTRAINT_CPUSET` or `CONSTRAINT_MEMORY_POLICY` in the block around the line
"Killed process", with this process's exact pid for proven, with fitting name, user, sizes and time for likely. Counters
do not tell it from an out-of-memory kill of the whole machine.

## What to do

1. Bind to more nodes, or prefer a node instead of binding to it (`numactl --preferred` instead of `--membind`).
2. Spread the ranks over the nodes: `numastat -m` shows which one is full.

## Seen in the field

- Launchers that bind every rank to the node of its GPU, with all page cache of the data on the first node.
- Slurm with cpusets that contain one memory node.

## References

- man 7 cpuset; man 2 set_mempolicy; man 8 numactl; Linux mm/oom_kill.c, constrained_alloc
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.oom import NUMA, Weighed, findings
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    return findings(death, NUMA, _summary, _remedies, "The memory nodes it was bound to did not run out.")


def _summary(_death: Death, weighed: Weighed) -> str:
    kill = weighed.kill
    nodes = f" ({kill.nodemask})" if kill is not None and kill.nodemask else ""
    if kill is not None and kill.scope == "cpuset":
        return f"Killed by the kernel: the memory nodes of its cpuset{nodes} were full."
    return f"Killed by the kernel: the memory nodes it was bound to{nodes} were full."


def _remedies(_death: Death, _weighed: Weighed) -> list[Remedy]:
    return [
        Remedy("Bind to more memory nodes, or prefer one instead of binding to it (numactl --preferred)"),
        Remedy("Look at which node is full while the job runs", "numastat -m", settles=True),
    ]

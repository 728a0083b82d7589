"""Ray's memory monitor killed the worker.

## What it means

Each Ray node has a monitor that kills workers once the node's memory, or the container's, is used beyond a threshold
(95 % by default). It chooses by its own rule, usually a task that can be retried and started last. The kernel does not
take part.

## How it is told apart

Ray writes one sentence that names the worker's pid, how much was used and the threshold. It is proven when that is this
process by its exact pid and its end fits in time; likely when the sentence was only handed over with the process's
traces. Ray's list of "potential root causes" for an unexpected end mentions memory every time and is no evidence.

## What to do

1. Give tasks that need much memory a larger `num_cpus` or a `memory` resource, so that fewer run at once.
2. Raise the threshold (`RAY_memory_usage_threshold`) only where nothing else uses the node.

## Seen in the field

- Data preprocessing tasks that each hold a shard, as many at once as there are cores.

## References

- Ray documentation, "Out-Of-Memory Prevention"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import statement
from ftforensics.causes.registry import Kind
from ftforensics.causes.sizes import size_text
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    said = statement(death, ("ray",), "killed")
    if said is None:
        return
    held = f" It held {size_text(said.notice.rss)}." if said.notice.rss else ""
    yield Finding(
        cause="ray-memory-monitor",
        confidence=said.confidence,
        summary=f"Killed by Ray's memory monitor: the node's memory was used beyond the threshold.{held}",
        supports=said.supports,
        against=said.against,
        remedies=[
            Remedy("Let fewer tasks run at once on the node: give each one more num_cpus, or a memory resource"),
            Remedy("See who holds the memory", "ray memory", settles=True),
        ],
    )

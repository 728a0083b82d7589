"""Kubernetes evicted the pod, because the node was short of something.

## What it means

The kubelet ends whole pods when the node runs low on memory, disk space, inodes or process ids, before the kernel has
to. The pods that use most beyond what they requested go first. Containers get SIGTERM, then SIGKILL, or SIGKILL at
once; nothing of it is in the kernel's log.

## How it is told apart

The pod's status has reason `Evicted` and says for which resource. It is proven when that is this process's pod and its
end fits in time; likely when the status was only handed over with the process's traces. A container that was killed at
its own memory limit says `OOMKilled` instead.

## What to do

1. Request what the pod really uses: requests decide who is evicted, limits do not.
2. For `ephemeral-storage`, write checkpoints to a volume and not into the container.

## Seen in the field

- Datasets and checkpoints in the container's own layer fill the node's disk.
- Pods without a memory request on a shared node.

## References

- Kubernetes documentation, "Node-pressure Eviction"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import statement
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    said = statement(death, ("kubernetes",), "evicted")
    if said is None:
        return
    # One word, "memory" or "ephemeral-storage"; a whole message is in the cite.
    resource = said.notice.reason if said.notice.reason and " " not in said.notice.reason else None
    yield Finding(
        cause="kubernetes-eviction",
        confidence=said.confidence,
        summary=f"Kubernetes evicted the pod{f': the node was low on {resource}' if resource else ''}.",
        supports=said.supports,
        against=said.against,
        remedies=[
            Remedy(
                "Write large files to a volume, and request ephemeral-storage for the rest"
                if resource and "storage" in resource
                else f"Request as much {resource} as the pod really uses"
                if resource
                else "Read why in the pod's events: a drained node, a taint, a resource"
            ),
            Remedy("Read the pod's status", "kubectl describe pod POD", settles=True),
        ],
    )

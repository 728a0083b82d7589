"""The machine went away: it was started again, lost power, or the scheduler lost it.

## What it means

Nothing in the job failed. The node crashed, was powered off or restarted, or no longer answered the scheduler, which
then gave up the job there. The recorder's ring ends in the middle, without an end mark.

## How it is told apart

The scheduler says so: state NODE_FAIL, "DUE TO NODE FAILURE". That is proven for this process when it is about its job
and node and its end follows; the node may still have been running, cut off from the network. Without a scheduler: the
recorder's ring ends unseen and its machine has another boot id now. That is likely when the machine was started again
within ten minutes after the last sample, and possible when it was later: the process may have ended before.

## What to do

1. Take the node out until the reason is known: its management controller's event log, the end of the last boot's log.
2. Restart from the last checkpoint, with spare nodes where the scheduler offers them.

## Seen in the field

- A kernel panic after a GPU fell off the bus.
- Spot instances that are taken back.

## References

- man 5 slurm.conf (SlurmdTimeout); man 1 sacct (NODE_FAIL); man 1 journalctl (--boot)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import statement
from ftforensics.causes.ending import is_unseen
from ftforensics.causes.registry import Kind
from ftforensics.causes.scheduler import name_of
from ftforensics.causes.sizes import time_text
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

KIND = Kind.KILLER
_BOOT = 600.0  # seconds that a server takes from losing power to its kernel's start


def check_death(death: Death) -> Iterator[Finding]:
    remedies = [Remedy("Read how the last boot of the node ended", "journalctl -b -1 -e", settles=True)]
    said = statement(death, ("slurm", "kubernetes"), "node-failed")
    if said is not None:
        yield Finding(
            cause="node-lost",
            confidence=said.confidence,
            summary=f"{name_of(said.notice.authority)} lost the node{f' {death.host}' if death.host else ''}.",
            supports=said.supports,
            against=said.against,
            remedies=remedies,
        )
    elif death.rebooted is not None and is_unseen(death):
        after = death.rebooted_after
        soon = after is not None and 0 <= after <= _BOOT
        when = f" {time_text(after)} later" if after is not None and after >= 0 else " since"
        yield Finding(
            cause="node-lost",
            confidence=Confidence.LIKELY if soon else Confidence.POSSIBLE,
            summary=f"Its end was not seen, and the machine was started again{when}.",
            supports=[death.rebooted],
            against=[one.cite for one in death.oom],
            remedies=remedies,
        )

"""systemd-oomd killed the process's unit, because memory was under pressure.

## What it means

systemd-oomd watches how long programs wait for memory, and kills a whole unit before the kernel runs out. All processes
of that unit get SIGKILL at once: a terminal's scope holds everything that was started in it. The kernel's log says
nothing, and its counters do not move.

## How it is told apart

systemd-oomd writes into the journal which group it killed. It is proven when that is this process's group or one above
it, its end fits in time, and nothing speaks against it. It is likely when the line was only handed over with the
process's traces, or when a process of that name was traced as the sender. systemd's own line "killed by the OOM killer"
is about the kernel's kills and none of this.

## What to do

1. Run the job in a unit of its own with `ManagedOOMPreference=avoid`, or as a system service.
2. Use less memory: pressure means that the machine was already waiting for it.

## Seen in the field

- Training from a desktop terminal on Ubuntu or Fedora, where user slices are watched by default.

## References

- man 8 systemd-oomd.service; man 5 oomd.conf; man 5 systemd.resource-control (ManagedOOMMemoryPressure)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import daemon, statement
from ftforensics.causes.ending import SIGKILL
from ftforensics.causes.oom import exclusions
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

KIND = Kind.KILLER
_COMMAND = "systemd-run --user --scope -p ManagedOOMPreference=avoid COMMAND..."


def check_death(death: Death) -> Iterator[Finding]:
    said = statement(death, ("systemd-oomd",), "killed", endings=(SIGKILL,))
    traced = daemon(death, "systemd-oomd")
    remedies = [
        Remedy("Run the job in a unit that systemd-oomd spares", _COMMAND),
        Remedy("Read what it wrote", "journalctl -u systemd-oomd", settles=True),
    ]
    if said is not None:
        group = f" {said.notice.group}" if said.notice.group else ""
        yield Finding(
            cause="systemd-oomd",
            confidence=said.confidence,
            summary=f"Killed by systemd-oomd with its unit{group}: memory was under pressure.",
            supports=[*said.supports, *exclusions(death)],  # no kernel kill: what one expects here
            against=said.against,
            remedies=remedies,
        )
    elif traced is not None and not death.alive:
        yield Finding(
            cause="systemd-oomd",
            confidence=Confidence.POSSIBLE if death.oom else Confidence.LIKELY,
            summary="SIGKILL was sent by systemd-oomd, which kills units when memory is under pressure.",
            supports=[traced.cite, *exclusions(death)],
            against=[one.cite for one in death.oom],
            remedies=remedies,
        )

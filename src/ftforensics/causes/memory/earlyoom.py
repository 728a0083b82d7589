"""earlyoom killed the process, because the machine had little memory left.

## What it means

earlyoom is a daemon that watches how much memory and swap are left, and sends SIGTERM, later SIGKILL, to the process
with the highest score before the kernel would. The kernel's log says nothing of it.

## How it is told apart

earlyoom writes whom it signals, by pid and name. It is proven when that is this process by its exact pid, the end fits
in time, and nothing speaks against it; likely when the line was only handed over with the process's traces, or when a
process of that name was traced as the sender.

## What to do

1. Use less memory, or run on a machine with more.
2. Let earlyoom spare the job (`--avoid`), or prefer others (`--prefer`).

## Seen in the field

- Workstations where earlyoom keeps the desktop alive; the training is always the largest process.

## References

- earlyoom's README and man 1 earlyoom
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import daemon, statement
from ftforensics.causes.ending import signal_of
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.signals import signal_name

KIND = Kind.KILLER


def check_death(death: Death) -> Iterator[Finding]:
    said = statement(death, ("earlyoom",), "killed")
    traced = daemon(death, "earlyoom")
    remedies = [
        Remedy("Use fewer ranks or workers, or let earlyoom spare the job", "earlyoom --avoid '(^|/)python'"),
        Remedy("Read what it wrote", "journalctl -u earlyoom", settles=True),
    ]
    if said is not None:
        yield Finding(
            cause="earlyoom",
            confidence=said.confidence,
            summary="Killed by earlyoom: the machine had little memory left.",
            supports=said.supports,
            against=said.against,
            remedies=remedies,
        )
    elif traced is not None and not death.alive:
        name = signal_name(signal_of(death) or traced.sent.signal)
        yield Finding(
            cause="earlyoom",
            confidence=Confidence.POSSIBLE if death.oom else Confidence.LIKELY,
            summary=f"{name} was sent by earlyoom, which kills when the machine has little memory left.",
            supports=[traced.cite],
            against=[one.cite for one in death.oom],
            remedies=remedies,
        )

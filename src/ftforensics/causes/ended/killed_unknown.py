"""A signal ended it, and who sent it is not known.

## What it means

SIGKILL cannot be caught and leaves nothing behind in the process. The exit status says that it was sent, not by whom:
the kernel for want of memory, a scheduler, a container runtime, a launcher, a person. Nothing that could be read here
settles it. The same is said of SIGTERM and others that a process does not send itself.

## How it is told apart

It is the residual: nothing more specific was at least likely. What fits is listed as possible, what was looked for and
excluded as ruled out, and what could not be read with the command that would make it readable. The number -9 or 137
alone is no evidence for an out-of-memory kill.

## What to do

1. Make the look that the report names first: it is the cheapest one that tells the candidates apart.
2. Run the next attempt under `ftforensics run` as root: it traces who sends SIGKILL, and reads the kernel's log and the
   memory counters at once.

## Seen in the field

- A pod or job that somebody stopped by hand.
- Kernel logs that nobody in the container may read.
- A launcher that ends the ranks of another failure, whose own output was lost.

## References

- man 7 signal; man 2 kill; man 2 waitpid
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import FAULTS, SIGKILL, is_killed, sent_by_kernel, signal_of
from ftforensics.causes.oom import exclusions, settling_look
from ftforensics.causes.pressure import pressures
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.signals import signal_name
from ftforensics.parsers.cgroup_path import unit_of

KIND = Kind.RESIDUAL


def check_death(death: Death) -> Iterator[Finding]:
    number = signal_of(death)
    if death.alive or number is None or number in FAULTS:
        return
    yield Finding(
        cause="killed-unknown",
        # A residual that is not even likely: the verdict is then undecided.
        confidence=Confidence.POSSIBLE,
        summary=f"{_said(death, number)}; {_by_whom(death)}.",
        supports=[*death.ending, *_noted(death)],
        unknown=list(death.gaps),
        remedies=_remedies(death, number),
    )


def _said(death: Death, number: int) -> str:
    name = signal_name(number)
    if death.signal is not None:
        return f"{'Killed' if number == SIGKILL else 'Ended'} by {name}"
    return f"Exit status {death.code}, which stands for {name}"


def _by_whom(death: Death) -> str:
    return "the kernel itself sent it, why is not known" if sent_by_kernel(death) else "who sent it is not known"


def _noted(death: Death) -> Iterator[Cite]:
    """What narrows it down without deciding it."""
    kernel = sent_by_kernel(death)
    if kernel is not None:
        yield kernel.cite
    for seen in pressures(death)[:1]:
        yield seen.cite


def _remedies(death: Death, number: int) -> list[Remedy]:
    found = []
    if is_killed(death) and not exclusions(death):
        found.append(settling_look(death))
    if (job := _slurm_job(death)) is not None:
        found.append(
            Remedy("Ask Slurm what it knows of the job", f"sacct -j {job} -o JobID,State,ExitCode,MaxRSS", settles=True)
        )
    elif death.container is not None:
        command = f"docker inspect {death.container[:12]} --format '{{{{json .State}}}}'"
        found.append(Remedy("Ask the container runtime about its end", command, settles=True))
    if not death.traced:
        how = "ftforensics run -- COMMAND..." if number == SIGKILL else None
        found.append(
            Remedy(f"Run the next attempt under ftforensics as root: it records who sends {signal_name(number)}", how)
        )
    return found


def _slurm_job(death: Death) -> str | None:
    unit = unit_of(death.groups[0]) if death.groups else None
    name = (unit or "").rpartition("/")[2]
    return name.removeprefix("job_") if name.startswith("job_") else None

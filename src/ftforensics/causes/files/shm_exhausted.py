"""Shared memory (/dev/shm) was full.

## What it means

Data loader workers hand their batches over through files in /dev/shm, a file system in memory with a limit of its
own: 64 MB in a container unless asked otherwise. Such a file is created at once and filled page by page; when the
limit (or the memory behind it) is reached, touching the next page ends the process with SIGBUS.

## How it is told apart

SIGBUS with BUS_ADRERR at an address inside a mapping of a file in /dev/shm or of another file in memory: likely. Such a
file cut short by somebody else looks the same unless its length was recorded, so proven is not given; with the length
known, an access beyond the end counts as `file-truncated-under-mmap`. So does any memfd (memfd_create), whose file
system has no limit to reach.

torch 2.x preallocates, and raises an exception in place of the signal: "unable to allocate shared memory(shm) for file
</torch_...>: No space left on device". That is this cause and not a full disk, by torch's own text, and so is an
OSError of that number for a file in /dev/shm, and NCCL's failure to make a segment there. It is as sure as it is that
the exception ended the process.

## What to do

1. Give the container more: `docker run --shm-size=16g`, or `--ipc=host`; in Kubernetes an `emptyDir` with `medium:
   Memory` at /dev/shm.
2. Use fewer workers or a smaller `prefetch_factor`; or `torch.multiprocessing.set_sharing_strategy("file_system")`.
3. Remove what dead jobs left behind in /dev/shm.

## Seen in the field

- "DataLoader worker is killed by signal: Bus error" in containers: the default of 64 MB.
- idiap/ESLAM#20: "unable to write to file </torch_31911_952036340_6686>: No space left on device (28)" in Docker;
  `--shm-size="32g"` ended it.
- Exit code -7 of a rank whose NCCL uses shared memory between GPUs of one node.

## References

- man 7 shm_overview, man 5 tmpfs; Docker documentation, `--shm-size`
- PyTorch documentation, "Multiprocessing best practices", sharing strategies
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import places
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.basics import Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)
_PLENTY = 64 * 1024 * 1024  # free bytes at which "full" stops being the explanation
_REMEDIES = (
    Remedy("Give the container more shared memory", "docker run --shm-size=16g ...   (or --ipc=host)"),
    Remedy("Use less of it: fewer data loader workers (num_workers), a smaller prefetch_factor"),
    Remedy("Look how large it is, and what dead jobs left there", "df -h /dev/shm; ls -lS /dev/shm", settles=True),
)


def check(crash: Crash) -> Iterator[Finding]:
    if crash.reading.mechanism is not Mechanism.BUS_SHM_FULL:
        return
    file = crash.record.fault_file
    free = file.free if file is not None else None
    unknown = list(crash.reading.unknown)
    if free is None:
        unknown.append(Gap("shm", "how full /dev/shm was", "df -h /dev/shm"))
    confidence = Confidence.LIKELY if free is None or free < _PLENTY else Confidence.POSSIBLE
    yield Finding(
        cause="shm-exhausted",
        confidence=confidence,
        summary="Shared memory was full when the process touched the next page of it.",
        supports=[*crash.reading.supports, *places(crash)],
        against=list(crash.reading.against),
        unknown=unknown,
        remedies=list(_REMEDIES),
    )


def check_death(death: Death) -> Iterator[Finding]:
    """An exception says so in words, where the signal would have said it without."""
    found = refinement(death, About.SHARED_MEMORY)
    if found is not None:
        yield finding(found, "shm-exhausted", "Shared memory was full", remedies=_REMEDIES)

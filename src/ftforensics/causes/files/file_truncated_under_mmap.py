"""A file that was mapped into memory became shorter.

## What it means

The program reads a file through `mmap` (safetensors, memory-mapped datasets, `torch.load(mmap=True)`, executables and
libraries), and somebody cut or rewrote that file meanwhile. A page that the mapping promises is no longer behind it,
so the kernel answers the access with SIGBUS.

## How it is told apart

SIGBUS with BUS_ADRERR at an address inside a mapping of a file on a disk: likely, and surer when the file's length,
taken by the crashing process itself, ends before the page that was touched. It is never proven: a program that maps
more than the file ever held gets the same signal, and how long the file was before is not in the record. When the page
lies inside the file, truncation is ruled out; a full or failing disk, or a network file system that lost its server, is
left. Files in /dev/shm belong to `shm-exhausted` unless their length says otherwise.

## What to do

1. Never write over a file that others have mapped: write a new one beside it and rename it over the old name.
2. Give each job its own copy of a dataset cache, or make the cache read-only.
3. On network file systems read the file instead of mapping it (`torch.load(mmap=False)`, `datasets` with
   `keep_in_memory=True`).

## Seen in the field

- A second job preprocesses into the same cache folder while the first one trains from it.
- A checkpoint overwritten in place while another process evaluates it.

## References

- man 2 mmap (SIGBUS), man 2 sigaction (BUS_ADRERR), man 2 rename
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import places
from ftforensics.model.basics import Gap
from ftforensics.model.case import Crash
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism
from ftforensics.parsers.proc_maps import parse_mapping

KIND = Kind.OWN_FAULT


def check(crash: Crash) -> Iterator[Finding]:
    if crash.reading.mechanism is not Mechanism.BUS_TRUNCATED_FILE:
        return
    file = crash.record.fault_file
    mapping = parse_mapping(crash.reading.mapping or "")
    path = (mapping.path if mapping else None) or (file.path if file else None) or "a file without a name"
    gone = mapping is not None and mapping.deleted
    measured = file is not None and file.size is not None
    unknown = list(crash.reading.unknown)
    if not measured:
        unknown.append(
            Gap(
                "kmsg",
                "whether the disk failed to deliver the page instead",
                "dmesg | grep -iE 'i/o error|ext4|xfs|nfs'",
            )
        )
    yield Finding(
        cause="file-truncated-under-mmap",
        confidence=Confidence.LIKELY,
        summary=f"A mapped file ends before the page that was touched: {path}, {file.size} bytes long."
        if file is not None and file.size is not None
        else f"A mapped file{', deleted since,' if gone else ''} became shorter while it was in use: {path}.",
        supports=[*crash.reading.supports, *places(crash)],
        against=list(crash.reading.against),
        unknown=unknown,
        remedies=_remedies(path, gone),
    )


def _remedies(path: str, gone: bool) -> list[Remedy]:
    writer = f"Find out who writes {path}; write to a new file and rename it instead"
    if gone:  # nothing can be asked about it any more
        return [Remedy(writer)]
    return [
        Remedy(writer, f"lsof {shlex.quote(path)}"),
        Remedy(
            "Compare with the time of the crash: changed shortly before it, the file was cut under the job; long "
            "before, the program maps more than the file holds",
            f"stat {shlex.quote(path)}",
            settles=True,
        ),
    ]

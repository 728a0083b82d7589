"""The storage behind a file failed.

## What it means

Reading or writing failed below the file system: a disk returned an error (EIO), a network file system lost the file or
its server (ESTALE, EREMOTEIO), or the program that serves a mounted folder is gone (ENOTCONN: FUSE, as of object
stores). The program did nothing wrong; the same line works again once the storage does.

## How it is told apart

By the error's number, with the file that it was about. It is as sure as it is that the exception ended the process.
EIO without a file is possible only: a terminal that was closed answers with it too, when a progress bar writes there.

## What to do

1. `findmnt -T PATH` says which mount it is; `sudo dmesg -T | grep -iE 'nfs|lustre|i/o error|ext4|xfs'` what the kernel
   saw of it.
2. ESTALE: somebody removed or replaced the file on the server while this client had it open. Write to a new name and
   rename, on one rank; turn off caches of a lock file.
3. Retry reads of network storage, and copy data to a local disk first.

## Seen in the field

- huggingface/transformers#9732, hiyouga/LlamaFactory#3243: "OSError: [Errno 116] Stale file handle" while an optimizer
  state was saved to NFS.
- modelscope/ms-swift#6695: the same from a cache of indices that ranks on several nodes write at once.
- "[Errno 107] Transport endpoint is not connected": the FUSE program of a bucket was killed for want of memory.

## References

- man 3 errno; man 5 nfs ("Data and metadata coherence"); man 4 fuse
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)
_ESTALE, _ENOTCONN = 116, 107
_LOOK = "sudo dmesg -T | grep -iE 'nfs|lustre|i/o error|ext4|xfs|nvme'"


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.STORAGE)
    if found is None:
        return
    subject = found.subject
    against = []
    if subject.uncertain:
        text = "it names no file: a closed terminal answers with the same number"
        against.append(Cite(found.supports[0].source, found.supports[0].locator, text))
    mount = f"findmnt -T {shlex.quote(subject.path)}; " if subject.path else ""
    remedies = [Remedy("See which mount it is, and what the kernel saw of it", mount + _LOOK, settles=True)]
    if subject.errno == _ESTALE:
        remedies.append(Remedy("Write to a new name and rename it, on one rank: the file was replaced on the server"))
    if subject.errno == _ENOTCONN:
        remedies.append(Remedy("Mount the folder again: the program that served it is gone"))
    remedies.append(Remedy("Read from a copy on a local disk, or try again after a while"))
    yield finding(found, "storage-error", "The storage behind a file failed", against=against, remedies=remedies)

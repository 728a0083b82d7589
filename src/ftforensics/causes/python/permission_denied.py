"""The process was not allowed to touch a file or to do what it asked for.

## What it means

The user that the job runs as may not read, write or enter there: the file belongs to somebody else, the folder is
mounted read-only, the container runs as another user, or a security policy forbids it.

## How it is told apart

By the exception's type and number: `PermissionError` (EACCES, EPERM), or EROFS, a read-only file system. It is as sure
as it is that the exception ended the process. A file system that became read-only on its own did so after errors of its
disk: the kernel's log then says more.

## What to do

1. `namei -l PATH` shows owner and rights of every folder on the way; `id` as whom the job runs.
2. In a container: run as the owner of the mounted folder (`--user $(id -u):$(id -g)`), mount it writable.
3. For caches: `HF_HOME`, `TORCH_HOME`, `TRITON_CACHE_DIR` to a folder that belongs to the job.

## Seen in the field

- "[Errno 13] Permission denied: '/root/.cache/huggingface'": an image built as root and run as a user.
- Root may not write to an NFS export of a cluster (root squash).

## References

- man 2 open (EACCES, EPERM, EROFS); man 7 path_resolution; Python documentation, `PermissionError`
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)
_EROFS = 30


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.DENIED)
    if found is None:
        return
    read_only = found.subject.errno == _EROFS
    path = found.subject.path
    remedies = []
    if path and read_only:
        text = "See how it is mounted; if it was writable before, the kernel's log says why it is not any more"
        remedies.append(Remedy(text, f"findmnt -T {shlex.quote(path)}; sudo dmesg -T | tail -50", True))
    elif path:
        text = "See who owns what on the way there, and as whom the job runs"
        remedies.append(Remedy(text, f"id; namei -l {shlex.quote(path)}", True))
    remedies.append(Remedy("Give the job a folder of its own: output paths, HF_HOME, TORCH_HOME, TRITON_CACHE_DIR"))
    what = "The file system is read-only" if read_only else "The process was not allowed to do that"
    yield finding(found, "permission-denied", what, remedies=remedies)

"""A file or folder that the program wanted was not there.

## What it means

Something was opened or started that does not exist where the program looked: a checkpoint, a data file, a
configuration, or a program. In a job with several nodes the usual reason is that it lies on the disk of one of them
only, or that the job started in another folder than one thought, so that a relative path leads elsewhere.

## How it is told apart

By the exception's type and number: `FileNotFoundError`, ENOENT. It is as sure as it is that the exception ended the
process. A socket or a shared memory file that another process of the job made and took along when it ended is not
this: such an error is a consequence.

## What to do

1. `ls -ld PATH` on the machine that it happened on, from the folder that the job started in.
2. Give absolute paths on a file system that all nodes see; let one rank prepare files and the others wait at a barrier.
3. If another job or rank removes old checkpoints, keep more of them.

## Seen in the field

- Only the ranks of one node fail: the data set was copied to the disk of the other.
- A rank deletes the oldest checkpoint while another one still reads it.

## References

- man 2 open (ENOENT); Python documentation, `FileNotFoundError`
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, raised_below, refinement
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)
# Their sockets and files go away with the process that made them.
_BETWEEN_PROCESSES = ("/multiprocessing/", "/multiprocess/", "/torch/distributed/", "/joblib/", "/loky/")
_OF_OTHERS = re.compile(r"/torch_\d{1,10}_|/dev/shm/|/tmp/pymp-")


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.NOT_FOUND)
    if found is None or raised_below(found.failure, *_BETWEEN_PROCESSES):
        return
    path = found.subject.path
    if path is not None and _OF_OTHERS.match(path):
        return
    program = raised_below(found.failure, "/subprocess.py")
    where = f" on {death.host}" if death.host else ""
    remedies = []
    if path and program and "/" not in path:
        remedies.append(Remedy("Look whether the program is installed there", f"command -v {shlex.quote(path)}", True))
    elif path:
        text = f"Look whether it is there{where}, from the folder that the job started in"
        remedies.append(Remedy(text, f"ls -ld {shlex.quote(path)}", True))
    remedies.append(Remedy("On several nodes: give absolute paths on a file system that all of them see"))
    what = "A program that was to be started is not there" if program else "A file or folder was not there"
    yield finding(found, "file-not-found", what, remedies=remedies)

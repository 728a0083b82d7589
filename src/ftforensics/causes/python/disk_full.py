"""The disk, or the share of it that the job may use, was full.

## What it means

A file could not be written any further: no space or no inodes are left on that file system, or the user's quota is used
up. It happens when checkpoints are saved as a rule, because nothing else writes as much.

## How it is told apart

By the error's number: ENOSPC, or EDQUOT for a quota. It is as sure as it is that the exception ended the process. The
same number for a file in /dev/shm is `shm-exhausted`: that is memory. torch's "PytorchStreamWriter failed writing file"
and "unexpected pos" only say that a write failed: where nothing gives the number, a full disk is possible, and so are a
network file system that failed for a moment and a disk that is broken.

## What to do

1. `df -h PATH; df -i PATH; quota -s` on the machine that it happened on.
2. Keep fewer checkpoints (`save_total_limit`), remove old ones first, write to a larger file system.
3. The checkpoint that was being written is cut: remove it before the job resumes from it.

## Seen in the field

- zai-org/ChatGLM-6B#1166: "PytorchStreamWriter failed writing file data/3: file write failed" while the optimizer's
  state was saved.
- rwth-i6/returnn#1829: the same text from a shared file system that failed for a moment, or a quota.
- A full /tmp or home folder: caches of datasets and of compiled kernels.

## References

- man 2 write (ENOSPC, EDQUOT); PyTorch source, caffe2/serialize/inline_container.cc
- Hugging Face documentation, `TrainingArguments.save_total_limit`
"""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.basics import Gap
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)
_EDQUOT = 122


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.DISK_FULL)
    if found is None:
        return
    subject = found.subject
    folder = shlex.quote(os.path.dirname(subject.path) or ".") if subject.path else "PATH"
    look = f"df -h {folder}; df -i {folder}; quota -s"
    unknown = []
    if subject.uncertain:
        unknown.append(Gap("job", "why the write failed: torch gives no error number", look))
    what = "A file could not be written, perhaps for want of space" if subject.uncertain else "The disk was full"
    yield finding(
        found,
        "disk-full",
        "The user's quota of the disk was used up" if subject.errno == _EDQUOT else what,
        unknown=unknown,
        remedies=[
            Remedy("Look how full it is, on the machine that it happened on", look, settles=True),
            Remedy("Keep fewer checkpoints (save_total_limit), and remove the one that was cut before resuming"),
        ],
    )

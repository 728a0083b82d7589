"""The program did not understand its command line.

## What it means

A parser of arguments printed how the program is to be called, said what is wrong, and ended the process with status 2.
Nothing ran. All ranks of a job do so alike, because they get the same arguments.

## How it is told apart

The usage message's last line ("train.py: error: ...") in the process's output together with the status 2 that argparse,
click and their like end with: likely. Such a line before another status is possible. A TypeError or ValueError inside
the program is not this. A status of 2 alone is not either.

## What to do

1. Correct the argument that the message names; `python train.py --help` lists the ones that exist.
2. `--local_rank` or `--local-rank` comes from `torch.distributed.launch`: use `torchrun`, and read `LOCAL_RANK` from
   the environment.

## Seen in the field

- open-mmlab/mmgeneration#515, OFA-Sys/Chinese-CLIP#74: "error: unrecognized arguments: --local-rank=0" since torch 2.0
  spells it with a dash, and torchrun then reports `exitcode: 2`.

## References

- Python documentation, argparse, "Exiting methods"; PyTorch documentation, "torchrun", "Transitioning"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftforensics.causes.ending import line_cite
from ftforensics.causes.raised import own_exception
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.launcher import ExceptionSeen
from ftforensics.parsers.exception_subject import About, subject_of

KIND = Kind.OWN_FAULT
_STATUS = 2  # argparse.ArgumentParser.error, click.UsageError


def check_death(death: Death) -> Iterator[Finding]:
    seen = _said(death)
    if seen is None or death.code in (None, 0):
        return
    said = " ".join(seen.message.split())[:300]
    remedies = [Remedy("See which arguments the program has", "python ... --help", settles=True)]
    if said.startswith(("unrecognized arguments: --local-rank", "unrecognized arguments: --local_rank")):
        text = (
            "Start the job with torchrun in place of torch.distributed.launch, and read LOCAL_RANK from the environment"
        )
        remedies.insert(0, Remedy(text, "torchrun --nproc-per-node=gpu train.py ..."))
    yield Finding(
        cause="bad-arguments",
        confidence=Confidence.LIKELY if death.code == _STATUS else Confidence.POSSIBLE,
        summary=f"The program did not understand its command line: {said}.",
        supports=[line_cite(seen.line), *death.ending],
        remedies=remedies,
    )


def _said(death: Death) -> ExceptionSeen | None:
    """The usage message's last line: its own, or one of those that all processes of this status printed alike."""
    own = own_exception(death)
    if own is not None:
        told = not own.recorded and subject_of(own.raised).about is About.ARGUMENTS and own.raised.message
        return death.exceptions[-1] if told and death.exceptions else None
    usages = [one for one in death.unowned if one.type == "SystemExit" and one.message]
    alike = {re.sub(r"\d+", "0", one.message) for one in usages}
    return usages[0] if death.code == _STATUS and len(alike) == 1 else None

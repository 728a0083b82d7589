"""Whose output a file holds, as its path says: torchrun's `--log-dir` and what people call the files of a rank.

torchrun writes LOG_DIR/RUN_ID_RANDOM/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}
(torch/distributed/elastic/multiprocessing/api.py, DefaultLogsSpecs.reify; the same in torch 1.9 to 2.13).
"""

from __future__ import annotations

import re

import msgspec

_TORCHRUN = re.compile(r"(?:\A|/)attempt_(\d{1,9})/(\d{1,9})/[^/]*\Z")
_RANK = re.compile(r"(?:\A|[._/-])(local[._-]?)?rank[._-]?(\d{1,9})(?=[._/-]|\Z)", re.IGNORECASE)


class OutputOf(msgspec.Struct, frozen=True):
    """One process of a job. attempt: torchrun's restart count; None: the path does not say."""

    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None


def output_of(path: str) -> OutputOf:
    """Of the file's own name and the three folders above it: what stands further up is about more than one process."""
    near = "/".join(path.rsplit("/", 4)[-4:])
    if torchrun := _TORCHRUN.search(near):
        return OutputOf(local_rank=int(torchrun[2]), attempt=int(torchrun[1]))
    found = list(_RANK.finditer("/".join(near.rsplit("/", 2)[-2:])))
    if not found:
        return OutputOf()
    local, number = found[-1].groups()
    return OutputOf(local_rank=int(number)) if local else OutputOf(rank=int(number))

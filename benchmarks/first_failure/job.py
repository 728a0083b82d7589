"""A training loop of all-reduces in which one rank fails while the others wait for it.

    torchrun ... job.py KIND CULPRIT FOLDER [--record]

The culprit goes on only when every other rank has said that it enters the collective. It leaves its pid in
FOLDER/culprit. Who is ended from outside waits for it there: FOLDER/kill-me names the pid to be killed.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

STEP = 3


def fail(kind: str, folder: Path) -> None:
    if kind == "exception":
        raise RuntimeError(f"loss is NaN at step {STEP}")
    if kind == "exit":
        sys.exit(3)
    if kind == "abort":
        os.abort()
    if kind == "segv":
        import ctypes

        ctypes.memset(8, 0, 4)
    if kind == "oom":
        group = Path(os.environ["FIRST_FAILURE_GROUP"])
        (group / "cgroup.procs").write_text(str(os.getpid()))
        held = []
        while True:
            held.append(bytearray(b"x") * (8 << 20))
    # From outside: whoever does it is told whom.
    unfinished = folder / "kill-me.unfinished"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(folder / "kill-me")
    while True:
        os.read(0, 1)  # nothing comes; a SIGTERM or SIGKILL does
        import time

        time.sleep(0.1)


def main() -> None:
    kind, culprit, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    values = torch.ones(1 << 16)
    for step in range(STEP + 1):
        if step == STEP:
            if rank == culprit:
                store.wait([f"entering {other}" for other in range(size) if other != culprit])
                (folder / "culprit").write_text(str(os.getpid()))
                fail(kind, folder)
            else:
                store.set(f"entering {rank}", b"1")
        dist.all_reduce(values)


if __name__ == "__main__":
    (record(main) if "--record" in sys.argv else main)()

"""Two ranks in a loop of collectives; one of them says its pid and, asked to, takes too much memory."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import ftforensics

WAY, VICTIM = sys.argv[1], sys.argv[2]


def main() -> None:
    dist.init_process_group("gloo")
    tensor = torch.ones(1000)
    kept = []
    for step in range(100_000):
        ftforensics.step(step)
        with ftforensics.phase("all_reduce"):
            dist.all_reduce(tensor)
        tensor /= 2
        if step == 5 and os.environ["RANK"] == VICTIM:
            print("victim", os.getpid(), flush=True)
        if step >= 5 and WAY == "eat" and os.environ["RANK"] == VICTIM:
            kept.append(torch.ones(8 << 20, dtype=torch.uint8))
        time.sleep(0.01)


main()

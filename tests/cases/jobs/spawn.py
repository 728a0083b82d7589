"""torch.multiprocessing.spawn with two ranks: `spawn.py KIND`, the second one dies."""

from __future__ import annotations

import os
import sys

import torch.multiprocessing
import train


def rank(index: int) -> None:
    os.environ.update(RANK=str(index), WORLD_SIZE="2")
    sys.argv[1:] = ["40"]
    train.main()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)

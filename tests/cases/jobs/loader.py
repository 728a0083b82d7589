"""A training loop whose DataLoader worker dies as it is told: `loader.py KIND`."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, get_worker_info
from train import DEATHS, RANK, number, tell

ENDS_THE_WORKER = ("kill", "oom", "segv", "abort", "os-exit3")


class Samples(Dataset):  # type: ignore[type-arg]
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        worker = get_worker_info()
        if index == 21 and worker is not None and number(RANK, 0) == int(os.environ.get("DEATH_RANK", 0)):
            # What a worker raises is handed to its parent, which ends of it.
            tell(self.kind, None if self.kind in ENDS_THE_WORKER else os.getppid())
            if self.kind != "shm":
                DEATHS[self.kind]()
        return torch.zeros(1 << 20 if self.kind == "shm" else 16)


def main() -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    for index, batch in enumerate(DataLoader(Samples(sys.argv[1]), batch_size=8, num_workers=2)):
        if "RANK" in os.environ:
            dist.all_reduce(batch)
        print("batch", index, tuple(batch.shape), flush=True)


if __name__ == "__main__":
    main()

"""Two Ray actors, one of which dies as it is told: `ray_train.py KIND`."""

from __future__ import annotations

import os
import sys

import ray


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self, rank: int) -> None:
        os.environ["RANK"] = str(rank)

    def step(self, index: int, kind: str) -> int:
        from train import DEATHS, tell

        if kind and index == 5:
            tell(kind)
            DEATHS[kind]()
        return index


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
    trainers = [Trainer.remote(rank) for rank in range(2)]
    for index in range(10):
        results = [trainer.step.remote(index, sys.argv[1] if rank else "") for rank, trainer in enumerate(trainers)]
        print("step", index, ray.get(results), flush=True)

"""A job that dies in the way that is asked for. Words: install? FOLDER, then what to do."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time

import ftforensics


def eat(rate: int = 200 << 20) -> None:
    """Take memory until somebody stops it, `rate` bytes a second."""
    kept = []
    with ftforensics.phase("save_checkpoint"):
        ftforensics.step(500)
        while True:
            kept.append(bytearray(rate // 20))
            time.sleep(0.05)


def wait_for_signal() -> None:
    print("ready", flush=True)
    while True:
        signal.pause()


def burn() -> None:
    """Use processor time until the limit, which is a second from now."""
    used = int(time.process_time()) + 1
    soft_is_ignored = sys.argv[3:] == ["hard"]
    if soft_is_ignored:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CPU, (used, used + 1))
    while True:
        pass


def ranks() -> None:
    """A launcher with three ranks; the last one takes memory once the others run."""
    waiting = [_rank(number, "wait") for number in range(2)]
    for process in waiting:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in [_rank(2, "eat"), *waiting]:
        process.wait()


def _rank(number: int, what: str) -> subprocess.Popen[bytes]:
    variables = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "3"}
    command = [sys.executable, __file__, sys.argv[1], what]
    return subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE)


def worker() -> None:
    """A DataLoader whose worker takes too much."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> torch.Tensor:
            if index >= 8:
                kept = []
                while True:
                    kept.append(torch.ones(8 << 20, dtype=torch.uint8))
                    time.sleep(0.02)
            return torch.zeros(1)

    for number, _ in enumerate(DataLoader(Data(), batch_size=4, num_workers=1)):
        print("batch", number, flush=True)


if __name__ == "__main__":
    if sys.argv[1] != "-" and sys.argv[2] != "ranks":
        ftforensics.install(dir=sys.argv[1], helper="none")
    {"eat": eat, "wait": wait_for_signal, "burn": burn, "ranks": ranks, "worker": worker}[sys.argv[2]]()

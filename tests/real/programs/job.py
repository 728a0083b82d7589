"""A job that dies in the way that is asked for. Words: install? FOLDER, then what to do."""

from __future__ import annotations

import resource
import signal
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
    if sys.argv[1] != "-":
        ftforensics.install(dir=sys.argv[1], helper="none")
    {"eat": eat, "wait": wait_for_signal, "burn": burn, "worker": worker}[sys.argv[2]]()

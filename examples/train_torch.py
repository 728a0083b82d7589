"""A torch training loop that dies of a real fault inside libtorch.

The dataset serves windows of a mapped shard without copying, as fast readers do (numpy array over an address, then
torch.from_numpy), and unmaps the shard when the epoch seems to be done with it. The windows are still used: the next
operator on them reads memory that is gone, deep inside libtorch, and Python never gets to raise anything.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

import ftforensics

WINDOW = 256
WINDOWS = 64
FLOATS = WINDOW * WINDOWS

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Shard:
    """Floats in a mapping of our own, seen by numpy without a copy and without a reference that keeps it alive."""

    def __init__(self) -> None:
        self.size = FLOATS * 4
        protection, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.address = libc.mmap(None, self.size, protection, kind, -1, 0)
        self.__array_interface__ = {
            "data": (self.address, False),
            "shape": (WINDOWS, WINDOW),
            "typestr": "<f4",
            "version": 3,
        }

    def close(self) -> None:
        libc.munmap(self.address, self.size)


class Windows(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.shard = Shard()
        self.windows = torch.from_numpy(numpy.asarray(self.shard))
        self.windows.normal_()

    def __len__(self) -> int:
        return WINDOWS

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.windows[index]


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(batch), batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    ftforensics.install()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    data = Windows()
    model = torch.nn.Sequential(torch.nn.Linear(WINDOW, 16), torch.nn.Tanh(), torch.nn.Linear(16, WINDOW))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    with ftforensics.phase("train"):
        for step, batch in enumerate(DataLoader(data, batch_size=16, shuffle=True)):
            ftforensics.step(step)
            print(f"step {step}  loss {train_step(model, optimizer, batch):.4f}", flush=True)

    data.shard.close()  # but `data.windows` is still used below
    with ftforensics.phase("evaluate"):
        scale = data.windows.abs().mean()
        print(f"mean magnitude {scale.item():.4f}", flush=True)


if __name__ == "__main__":
    main()

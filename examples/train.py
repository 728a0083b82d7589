"""A training loop in plain Python that dies of a real fault.

It fits a line by gradient descent. Its reader hands out batches that point into a mapped shard, and unmaps the shard
when it opens the next one, while a batch of the old shard is still waiting: the mistake behind many "segmentation
fault, no traceback" reports. Nothing here pretends: the kernel sends the signal.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from collections import deque
from collections.abc import Iterator

import ftforensics

BATCH = 4096
BATCHES_PER_SHARD = 8
BATCH_BYTES = BATCH * 2 * ctypes.sizeof(ctypes.c_float)

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def open_shard(size: int) -> int:
    """Address of a fresh mapping filled with points near y = 3x - 1."""
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    points = (ctypes.c_float * (size // ctypes.sizeof(ctypes.c_float))).from_address(address)
    for i in range(0, len(points), 2):
        x = random.uniform(-1, 1)
        points[i], points[i + 1] = x, 3 * x - 1 + random.gauss(0, 0.05)
    return int(address)


def prefetched(depth: int = 2) -> Iterator[int]:
    """Addresses of batches, `depth` of them ahead of the trainer."""
    waiting: deque[int] = deque()
    size = BATCH_BYTES * BATCHES_PER_SHARD
    shard = open_shard(size)
    while True:
        for i in range(BATCHES_PER_SHARD):
            waiting.append(shard + i * BATCH_BYTES)
            if len(waiting) > depth:
                yield waiting.popleft()
        following = open_shard(size)
        libc.munmap(shard, size)  # the last `depth` batches still point into it
        shard = following


def copy_batch(address: int) -> list[float]:
    batch = (ctypes.c_float * (BATCH * 2))()
    ctypes.memmove(batch, address, BATCH_BYTES)
    return list(batch)


def train_step(weight: float, bias: float, batch: list[float]) -> tuple[float, float, float]:
    """One step of gradient descent on the squared error; returns weight, bias and loss."""
    xs, ys = batch[0::2], batch[1::2]
    errors = [weight * x + bias - y for x, y in zip(xs, ys, strict=True)]
    weight -= 0.5 * sum(e * x for e, x in zip(errors, xs, strict=True)) / BATCH
    bias -= 0.5 * sum(errors) / BATCH
    return weight, bias, sum(e * e for e in errors) / BATCH


def main() -> None:
    ftforensics.install()
    weight = bias = 0.0
    for step, address in enumerate(prefetched()):
        ftforensics.step(step)
        with ftforensics.phase("train"):
            weight, bias, loss = train_step(weight, bias, copy_batch(address))
        print(f"step {step}  loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()

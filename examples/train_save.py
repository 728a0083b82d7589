"""A training loop in plain Python whose save takes more memory than it may have.

The weights fit; the save copies them into host memory, layer by layer, before it writes a byte: the mistake behind
many "died with -9 while saving" reports. Nothing here pretends: the kernel ends it, and Python never learns why.
"""

from __future__ import annotations

import time

import ftforensics

LAYERS = 12
LAYER = 8 << 20  # bytes


def train_step(weights: list[bytearray], step: int) -> float:
    for layer in weights:
        layer[step] ^= 1
    time.sleep(0.3)
    return 4.0 / (1 + step)


def save_checkpoint(weights: list[bytearray]) -> None:
    state, optimizer = [], []
    for layer in weights:
        state.append(bytes(layer))
        optimizer.append(bytes(layer) + bytes(layer))  # two moments for each weight
        time.sleep(0.1)
    with open("/dev/null", "wb") as file:
        file.write(b"".join([*state, *optimizer]))


def main() -> None:
    ftforensics.install()
    weights = [bytearray(b"\1" * LAYER) for _ in range(LAYERS)]
    for step in range(1000):
        ftforensics.step(step)
        with ftforensics.phase("train"):
            loss = train_step(weights, step)
        print(f"step {step}  loss {loss:.4f}", flush=True)
        if step % 10 == 9:
            with ftforensics.phase("save_checkpoint"):
                save_checkpoint(weights)


if __name__ == "__main__":
    main()

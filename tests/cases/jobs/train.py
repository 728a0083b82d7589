"""A small data-parallel training job on the CPU that dies as it is told: `train.py ... STEPS`.

DEATHS says who dies how and when, one `RANK:KIND:STEP` per attempt with commas between; the rank that dies first
writes `pid rank kind` to the file DEATH_NOTE. Only the person who makes the case reads that note: the label comes from
it and not from what the job printed.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

OUTPUT = Path(__file__).parent / "out"
MIB = 1 << 20
# What each launcher calls a rank; torchrun's names are torch's own.
RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def number(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[name]) for name in names if name in os.environ), default)


def tell(kind: str, pid: int | None = None) -> None:
    """Who dies now, for the label."""
    with open(os.environ["DEATH_NOTE"], "a") as note:
        note.write(f"{pid or os.getpid()} {number(RANK, 0)} {kind}\n")


def grow() -> None:
    """Take memory in a control group with a limit until the kernel ends it."""
    Path(os.environ["DEATH_GROUP"], "cgroup.procs").write_text(str(os.getpid()))
    kept = []
    while True:
        kept.append(torch.ones(8 * MIB, dtype=torch.uint8))


def read_null() -> None:
    ctypes.string_at(0)


def forward_of_a_wrong_shape() -> None:
    torch.nn.Linear(128, 64)(torch.ones(4, 256))


def check_loss(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise RuntimeError(f"loss is {loss} at step {step}, stopping")


def open_shard(rank: int) -> bytes:
    return Path(f"/data/tokens/shard-{rank:05}.bin").read_bytes()


def import_kernels() -> None:
    import fused_attention_kernels  # type: ignore[import-not-found]  # noqa: F401


def check_batch(size: int) -> None:
    assert size % 8 == 0, f"batch size {size} is no multiple of 8"


def tokens_per_second(tokens: int, seconds: int) -> float:
    return tokens / seconds


def look_up_weight() -> object:
    return {"model.embed": 1}["model.layers.0.weight"]


def allocate_on_host() -> torch.Tensor:
    return torch.empty(1 << 50, dtype=torch.uint8)


def allocate_in_python() -> bytearray:
    return bytearray(1 << 60)


def save_checkpoint() -> None:
    with open(OUTPUT / "model.safetensors", "wb") as file:
        for _ in range(64):
            file.write(bytes(MIB))


def save_with_torch() -> None:
    torch.save(torch.ones(64 * MIB, dtype=torch.uint8), OUTPUT / "model.pt")


def open_log_of_another_user() -> None:
    os.seteuid(65534)
    open("/root/metrics.jsonl", "a").close()


def parse_arguments() -> None:
    parser = argparse.ArgumentParser("train.py")
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.parse_args(["--learning-rate", "fast"])


def raise_in_cleanup() -> None:
    """What fails first is the shape; what is printed last is the cleanup's own failure."""
    try:
        forward_of_a_wrong_shape()
    finally:
        open("/data/run/lock").close()


def wait_for_signal() -> None:
    while True:
        signal.pause()


DEATHS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "oom": grow,
    "segv": read_null,
    "abort": os.abort,
    "exit3": lambda: sys.exit(3),
    "os-exit3": lambda: os._exit(3),
    "shape": forward_of_a_wrong_shape,
    "nan": lambda: check_loss(math.nan, 7),
    "missing-file": lambda: open_shard(number(RANK, 0)),
    "missing-module": import_kernels,
    "assert": lambda: check_batch(12),
    "zero": lambda: tokens_per_second(4096, 0),
    "key": look_up_weight,
    "host-memory": allocate_on_host,
    "python-memory": allocate_in_python,
    "disk": save_checkpoint,
    "disk-torch": save_with_torch,
    "denied": open_log_of_another_user,
    "arguments": parse_arguments,
    "cleanup": raise_in_cleanup,
    "wait": wait_for_signal,
}


def main() -> None:
    rank, size = number(RANK, 0), number(WORLD_SIZE, 1)
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    plans = [plan.split(":") for plan in os.environ.get("DEATHS", "").split(",") if plan]
    plan = plans[attempt] if attempt < len(plans) else ["-1", "", "-1"]
    if "RESTARTS" in os.environ:
        # torchrun --standalone (2.13) keeps one store for all attempts, in which gloo finds the addresses of the
        # attempt before, and the new one dies of those.
        dist.init_process_group("gloo", f"file://{OUTPUT}/attempt-{attempt}", rank=rank, world_size=size)
    elif size > 1:
        dist.init_process_group("gloo", rank=rank, world_size=size)
    model = torch.nn.Linear(32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(int(sys.argv[-1])):
        if int(plan[0]) == rank and int(plan[2]) == step:
            tell(plan[1])
            DEATHS[plan[1]]()
        loss = model(torch.rand(64, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if size > 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    if os.environ.get("RECORD"):
        from torch.distributed.elastic.multiprocessing.errors import record

        record(main)()
    else:
        main()

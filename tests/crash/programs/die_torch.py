"""Dies inside a real libtorch: `die_torch.py --how libtorch|worker|record --dir DIR --watch ours|none [--build DIR]`.

libtorch: an addition whose operand lies on unmapped memory, as a buffer that was freed under a tensor.
worker: a DataLoader worker reads through NULL; the main process gets the loader's RuntimeError.
record: rank 1 of a torchrun job under @record dies like libtorch.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal

import torch


def train_step(gradient: torch.Tensor) -> torch.Tensor:
    return gradient + 1


def tensor_on_freed_memory() -> torch.Tensor:
    return torch.frombuffer((ctypes.c_float * 4096).from_address(0x123456789000), dtype=torch.float32)


class Shards(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, build: str) -> None:
        self.build = build

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 3:
            read_broken_shard(self.build)
        return torch.ones(4)


def read_broken_shard(build: str) -> None:
    print(json.dumps({"dying_pid": os.getpid()}), flush=True)
    ctypes.CDLL(os.path.join(build, "crashers.so")).crash_null_read()


def die_in_worker(build: str) -> None:
    loader = torch.utils.data.DataLoader(Shards(build), num_workers=2)
    try:
        for _ in loader:
            pass
    except (RuntimeError, EOFError, OSError) as error:
        # The reader of the queue may meet the worker's closed socket before torch's SIGCHLD handler raises; and that
        # handler raises anywhere in the main thread, in these lines too.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        os._exit(7)


def install(args: argparse.Namespace) -> None:
    if args.watch == "ours":
        import ftforensics

        ftforensics.install(dir=args.dir, helper="none")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", required=True)
    parser.add_argument("--watch", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--build")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the addition runs on the calling thread
    install(args)
    if args.how == "worker":
        die_in_worker(args.build)
        return
    if args.how == "record":
        from torch.distributed.elastic.multiprocessing.errors import record

        recorded = record(run_rank)
        recorded()
        return
    print(json.dumps({"pid": os.getpid()}), flush=True)
    train_step(tensor_on_freed_memory())


def run_rank() -> None:
    import torch.distributed as distributed

    distributed.init_process_group("gloo")
    distributed.barrier()
    if distributed.get_rank() == 1:
        print(json.dumps({"pid": os.getpid()}), flush=True)
        train_step(tensor_on_freed_memory())
    distributed.barrier()


if __name__ == "__main__":
    main()

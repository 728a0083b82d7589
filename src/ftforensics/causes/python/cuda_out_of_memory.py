"""The GPU's memory ran out.

## What it means

A tensor did not fit into what was left of the GPU's memory, and torch raised an exception. This is the memory on the
card: no process was killed, the machine's own memory has nothing to do with it, and no kernel log knows of it. Who read
"-9" or "Killed" instead has another problem.

## How it is told apart

By the exception's type (`torch.OutOfMemoryError`, in older torch `torch.cuda.OutOfMemoryError`), or by torch's own text
under `RuntimeError`. It is as sure as it is that the exception ended the process. The text says how much was wanted;
what torch holds and does not use ("reserved but unallocated") matters only where it is as large as that.

## What to do

1. Less at a time: a smaller batch with gradient accumulation, shorter sequences, activation checkpointing, a sharded
   optimizer (FSDP, ZeRO).
2. Look whether another process holds memory of the same card: `nvidia-smi`.
3. Where much is reserved and unused: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` (from torch 2.10 on also
   `PYTORCH_ALLOC_CONF`).

## Seen in the field

- murong-xu/CADS#4: 22.8 GiB wanted, 9.4 GiB reserved and unused: no setting of the allocator makes that fit.
- Tianhao-Qi/Mask2DiT#4: 35.6 GiB wanted, 40.7 GiB reserved and unused: there it does.
- pytorch/pytorch#173049: the hint about expandable segments is printed also where they are on already.
- deepspeedai/DeepSpeed#3823: a status of -9 taken for a full GPU. It never is.

## References

- PyTorch documentation, "CUDA semantics", memory management; torch.cuda.memory_summary
- PyTorch source, c10/cuda/CUDACachingAllocator.cpp
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.sizes import size_text
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About, Subject

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.GPU_MEMORY)
    if found is not None:
        yield finding(found, "cuda-out-of-memory", "GPU memory ran out", remedies=_remedies(found.subject))


def _remedies(subject: Subject) -> Iterator[Remedy]:
    tried, reserved = subject.tried, subject.reserved
    if tried is not None and reserved is not None and reserved >= tried:
        yield Remedy(
            f"Let the allocator give back what it holds unused ({size_text(reserved)}, and {size_text(tried)} were "
            "wanted): the memory is in pieces",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            settles=True,
        )
    yield Remedy(
        "Use less at a time: a smaller batch with gradient accumulation, activation checkpointing, a sharded optimizer"
    )
    yield Remedy(
        "Look whether another process holds memory of the same GPU",
        "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv",
        settles=True,
    )

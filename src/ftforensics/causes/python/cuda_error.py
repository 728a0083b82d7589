"""CUDA reported an error of the GPU's work.

## What it means

A kernel read memory that is not its own, ran too long, was given what it cannot work with, or the GPU itself failed;
or a library of CUDA's (cuBLAS, cuDNN, cuFFT) gave up. From then on every call to CUDA fails in this process.

## How it is told apart

An exception with torch's text "CUDA error: ...", or the status of one of CUDA's libraries. Errors that stand for the
installation (a driver that is too old, no code for this GPU, a stub library) have causes of their own, and a failed
check in a kernel is `cuda-device-assert`; this is the rest. Kernels run behind the program: the line in the traceback
is the one that noticed. An Xid in the kernel's log says what the driver saw (`gpu-xid`).

## What to do

1. Run once with `CUDA_LAUNCH_BLOCKING=1`: the line in the traceback is then the right one.
2. For "an illegal memory access": `compute-sanitizer python ...` names the kernel and the access.
3. Look for an Xid at that time: `sudo dmesg -T | grep -i xid`.
4. `CUBLAS_STATUS_ALLOC_FAILED` and `CUDNN_STATUS_NOT_INITIALIZED` often mean that the GPU's memory is full.

## Seen in the field

- "RuntimeError: CUDA error: an illegal memory access was encountered" from an optimizer step, raised by a kernel of a
  custom extension many calls before.
- "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`": out-of-range labels or a full GPU.

## References

- CUDA Runtime API, cudaError; NVIDIA, "compute-sanitizer"
- PyTorch documentation, "CUDA semantics", asynchronous execution
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.basics import Gap
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)
_OFTEN_MEMORY = ("CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_INITIALIZED")
_ACCESS = ("an illegal memory access", "misaligned address", "unspecified launch failure", "invalid program counter")


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.GPU_ERROR)
    if found is None:
        return
    what = found.subject.what or ""
    why = "which call started the work that failed: the traceback shows the one that noticed"
    yield finding(
        found,
        "cuda-error",
        "CUDA reported an error of the GPU's work",
        unknown=[Gap("exception", why, "CUDA_LAUNCH_BLOCKING=1 python ...")],
        remedies=_remedies(what),
    )


def _remedies(what: str) -> Iterator[Remedy]:
    yield Remedy(
        "Run once so that each kernel is waited for: the line is then the right one",
        "CUDA_LAUNCH_BLOCKING=1 python ...",
        settles=True,
    )
    if what.startswith(_ACCESS):
        yield Remedy(
            "Let NVIDIA's checker name the kernel and the access", "compute-sanitizer python ...", settles=True
        )
    if what.startswith(_OFTEN_MEMORY):
        yield Remedy("Look whether the GPU's memory was full: this status often means that", "nvidia-smi", settles=True)
    yield Remedy("Look what the driver saw at that time", "sudo dmesg -T | grep -i xid", settles=True)

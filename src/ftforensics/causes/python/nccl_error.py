"""NCCL failed in this process itself.

## What it means

NCCL carries tensors between GPUs. It could not do its work here: a socket, a file or memory of the system was refused,
CUDA failed below it, or it was used in a way that it does not allow, as when two ranks take the same GPU. That is a
fault of this process or its machine, not the news that another rank went away.

## How it is told apart

An exception of torch's with NCCL's result: `ncclSystemError`, `ncclUnhandledCudaError`, `ncclInvalidUsage`,
`ncclInternalError`. The results that speak of another process (`ncclRemoteError`, an aborted communicator, a collective
that timed out) are not this cause. It is as sure as it is that the exception ended the process. All ranks tend to raise
it together when the set-up is wrong, so which one was first says little.

## What to do

1. `NCCL_DEBUG=INFO` prints what was refused, in the lines before the error.
2. "Duplicate GPU detected": `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the first collective, and not
   more processes than GPUs.
3. `ncclSystemError`: the network interface (`NCCL_SOCKET_IFNAME`), open files (`ulimit -n`), locked memory (`ulimit
   -l`), /dev/shm.

## Seen in the field

- Peterande/D-FINE#289, haytham918 in NVIDIA/Megatron-LM#661: "Duplicate GPU detected : rank 0 and rank 1 both on CUDA
  device 2000", a device number set in the program.
- NVIDIA/nccl#1241: the same where the launcher starts more processes on a node than it has GPUs.

## References

- NCCL documentation, "Results" (ncclResult_t), "Environment Variables", "Troubleshooting"
- PyTorch source, torch/csrc/distributed/c10d/NCCLUtils.cpp
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.NCCL)
    if found is None:
        return
    what = found.subject.what or ""
    named = f" ({' '.join(what.split())[:200]})" if what else ""
    yield finding(found, "nccl-error", f"NCCL failed in this process{named}", remedies=_remedies(what))


def _remedies(what: str) -> Iterator[Remedy]:
    if "Duplicate GPU" in what:
        text = (
            "Give each rank a GPU of its own before the first collective, and start no more ranks than there are GPUs"
        )
        yield Remedy(text, 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))')
    elif "ncclUnhandledCudaError" in what:
        yield Remedy(
            "Look at CUDA's own error in the lines before, and whether the GPU's memory was full", "nvidia-smi"
        )
    elif "ncclSystemError" in what:
        yield Remedy(
            "Look at the limits and the network that NCCL uses: NCCL_SOCKET_IFNAME may name another interface",
            "ulimit -n -l; df -h /dev/shm; ip -br addr",
        )
    yield Remedy("Let NCCL say what was refused", "NCCL_DEBUG=INFO torchrun ...", settles=True)

"""A library of the GPU driver is not there.

## What it means

The driver's user-space half is several libraries: libcuda, the PTX compiler (`libnvidia-ptxjitcompiler`), NVML and
others. A container gets them from the host, and only the groups that it asks for; a minimal installation may leave some
out. Without libcuda no GPU is visible to the process. Without the PTX compiler all works until the first kernel that
the wheel has no machine code for.

## How it is told apart

CUDA said error 221 ("PTX JIT compiler library not found"), the loader said that libcuda or a `libnvidia-...` library
cannot be opened, or torch found no driver at all (`Found no NVIDIA driver on your system`): likely. Possible when that
was only a warning and the process ended in another way.

## What to do

1. In a container ask for GPUs (`--gpus all`, or the runtime's CDI device) and for the compute libraries
   (`NVIDIA_DRIVER_CAPABILITIES=compute,utility`).
2. On the machine install the driver's compute package of exactly the driver's version (`libnvidia-compute-570`,
   `nvidia-driver-cuda-libs`).
3. If no GPU is wanted, hide it: `CUDA_VISIBLE_DEVICES=""`.

## Seen in the field

- 221 in containers and images for embedded devices without libnvidia-ptxjitcompiler (jax#9644, jetpack-nixos#184).
- `docker run` without `--gpus`, or a pod without a GPU in its limits.

## References

- CUDA runtime API, cudaErrorJitCompilerNotFound (221), cudaErrorInsufficientDriver (35)
- NVIDIA container toolkit, "Driver capabilities"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_text import Said, said, said_in_record, stands_for
from ftforensics.causes.ending import weaker
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.launcher import StackText

ID = "driver-library-missing"
KIND = Kind.CIRCUMSTANCE
ORDER = 13
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("driver", "image")
_INSUFFICIENT = 35
_LIBRARIES = ("libcuda.so", "libnvidia-")


def check(crash: Crash) -> Iterator[Finding]:
    text = said_in_record(crash, _is_wanted)
    if text is not None:
        yield _finding(text, crash.record)


def check_death(death: Death) -> Iterator[Finding]:
    text = said(death, _is_wanted)
    if text is not None:
        yield _finding(text, death.crash.record if death.crash else None)


def _is_wanted(text: StackText) -> bool:
    if text.kind == "library-missing":
        return (text.library or "").rpartition("/")[2].startswith(_LIBRARIES)
    # A level of 0: no driver answered at all. A driver that is too old says which level it has.
    found_none = text.kind == "cuda-error" and text.code == _INSUFFICIENT
    return (found_none and text.version is not None and text.version <= 0) or stands_for(ID)(text)


def _finding(text: Said, record: CrashRecord | None) -> Finding:
    confidence, against = text.confidence, list(text.against)
    driver = record.driver if record else None
    if any(one.code == _INSUFFICIENT for one in text.texts) and driver is not None and driver.api_level:
        against.append(Cite("driver", "api_level", f"libcuda was there and reported {driver.api_level}"))
        confidence = weaker(confidence, Confidence.POSSIBLE)
    return Finding(
        cause=ID,
        confidence=confidence,
        summary=f"{_what(text)[:200]}.",
        supports=text.supports,
        against=against,
        unknown=text.unknown,
        remedies=[
            Remedy(
                "In a container ask for GPUs and the compute libraries",
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
            ),
            Remedy("On the machine install the driver's compute package, in exactly the driver's version"),
            Remedy(
                "See what is there, in the job's own container: libcuda.so.1 and libnvidia-ptxjitcompiler.so.1 must be "
                "listed, of the driver's version, else they are missing",
                "ldconfig -p | grep -E 'libcuda|libnvidia-'; ls /dev/nvidiactl; nvidia-smi",
                settles=True,
            ),
        ],
    )


def _what(text: Said) -> str:
    missing = next((one for one in text.texts if one.kind == "library-missing" and one.library), None)
    if missing is not None:
        return f"The driver's library {(missing.library or '').rpartition('/')[2]} could not be loaded"
    if any(one.code == _INSUFFICIENT for one in text.texts):
        return "No NVIDIA driver was visible to the process"
    return "The driver's compiler for PTX, libnvidia-ptxjitcompiler, was not found"

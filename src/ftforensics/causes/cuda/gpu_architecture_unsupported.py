"""There is no machine code for this GPU in torch or in an extension.

## What it means

GPU code is compiled for certain architectures ("compute capability", sm_80 for an A100). A torch that was built before
a GPU existed, or after its support ended, or an extension that was compiled for another machine's GPU, has no kernel
that runs on it.

## How it is told apart

CUDA said error 209 ("no kernel image is available for execution on the device"), or torch warned that the GPU "is not
compatible with the current PyTorch installation": likely, unless that was only a warning and the process ended in
another way. By the tables alone, when the wheel is known to lack the GPU's architecture, it is possible. It is an
error and never a memory fault: a segmentation fault is not explained by it.

## What to do

1. Install a torch for this GPU: before Turing (7.5) a CUDA 12.6 build, for Blackwell CUDA 12.8 or newer. The report
   names the one that also fits the driver.
2. Compile extensions for the GPU that they run on: `TORCH_CUDA_ARCH_LIST="8.6"`.
3. On a cluster with several kinds of GPUs compile for all of them, or request one kind.

## Seen in the field

- New cards with a torch from before them; Pascal and Volta cards with the default torch since 2.11.
- Extensions compiled on the login node's GPU (flash-attn, apex, DeepSpeed's operators).

## References

- CUDA runtime API, cudaErrorNoKernelImageForDevice (209)
- CUDA C++ programming guide, "Binary compatibility"; PyTorch release notes (supported architectures)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_stack import gave_up, is_fault
from ftforensics.causes.cuda_text import Said, said, said_in_record, stands_for
from ftforensics.causes.driver_fit import capability, cuda_wheel, gpus_without_code, torch_for_driver, uses_cuda
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord, Gpu
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

ID = "gpu-architecture-unsupported"
KIND = Kind.CIRCUMSTANCE
ORDER = 42
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("gpu", "package:torch")


def check(crash: Crash) -> Iterator[Finding]:
    if not is_fault(crash):
        return
    record = crash.record
    text = said_in_record(crash, stands_for(ID))
    if text is not None:
        yield _said(text, record)
        return
    left_out = gpus_without_code(record.software, record.driver)
    # Where one of several GPUs is served the job may well have used that one.
    if not left_out or record.driver is None or len(left_out) < len(record.driver.gpus):
        return
    if not uses_cuda(record.driver, record.libraries):
        return
    against = [] if gave_up(crash) else [Cite("crash", "signal", "a missing kernel is an error, never a memory fault")]
    yield _finding(record, Confidence.POSSIBLE, [], against, [])


def check_death(death: Death) -> Iterator[Finding]:
    text = said(death, stands_for(ID))
    if text is not None:
        yield _said(text, death.crash.record if death.crash else None)


def _said(text: Said, record: CrashRecord | None) -> Finding:
    named = next((one.symbol for one in text.texts if one.symbol), None)
    return _finding(record, text.confidence, text.supports, text.against, text.unknown, named)


def _finding(
    record: CrashRecord | None,
    confidence: Confidence,
    supports: list[Cite],
    against: list[Cite],
    unknown: list[Gap],
    named: str | None = None,
) -> Finding:
    software, driver = (record.software, record.driver) if record else (None, None)
    left_out = gpus_without_code(software, driver)
    wheel = cuda_wheel(software)
    cites = list(supports)
    gaps = list(unknown)
    summary = "A kernel was started that holds no code for this GPU."
    if named is not None:
        summary = f"The installed torch holds no code for this GPU ({named[:20]})."
    if left_out and wheel is not None:
        torch = f"torch {wheel.torch}+{wheel.variant}"
        summary = f"{torch} holds no code for {_gpu(left_out[0])}."
        cites += [Cite("driver", f"gpus[{one.index}]", _gpu(one)) for one in left_out[:3]]
        cites.append(Cite("facts", torch, f"{torch} is built for {', '.join(wheel.architectures)}"))
    elif wheel is not None and wheel.architectures and driver is not None and driver.gpus:
        summary = "A library other than torch holds no code for this GPU: an extension built for another one."
        text = f"torch's own wheel is built for {', '.join(wheel.architectures)}, this GPU among them"
        cites.append(Cite("facts", f"torch {wheel.torch}+{wheel.variant}", text))
    else:
        gaps.append(Gap("software", "for which GPUs torch and the extensions were built", _ARCHITECTURES))
    return Finding(
        cause=ID,
        confidence=confidence,
        summary=summary,
        supports=cites,
        against=against,
        unknown=gaps,
        remedies=_remedies(record, bool(left_out)),
    )


_ARCHITECTURES = 'python -c "import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())"'


def _remedies(record: CrashRecord | None, of_torch: bool) -> list[Remedy]:
    driver = record.driver if record else None
    remedies = torch_for_driver(record.software if record else None, driver) if driver is not None and of_torch else []
    own = next((found for gpu in (driver.gpus if driver else []) if (found := capability(gpu)) is not None), None)
    if driver is None:
        remedies.append(
            Remedy(
                "Install a torch that has code for this GPU: this prints the line", "ftforensics check --install torch"
            )
        )
    return [
        *remedies,
        Remedy(
            "Rebuild extensions for this GPU",
            f'TORCH_CUDA_ARCH_LIST="{own or "8.6"}" pip install --force-reinstall --no-deps --no-build-isolation '
            "--no-binary :all: EXTENSION",
        ),
        Remedy(
            "Compare what torch was built for with the GPU: if it is listed, an extension lacks it",
            _ARCHITECTURES,
            settles=True,
        ),
    ]


def _gpu(gpu: Gpu) -> str:
    own = capability(gpu)
    return f"{gpu.name or 'the GPU'} ({own})" if own else gpu.name or "the GPU"

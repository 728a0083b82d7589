"""A check in the GPU's own code failed (device-side assert).

## What it means

Kernels check their input too, but they cannot raise an exception: they stop the GPU's work for this process, and every
later call to CUDA fails with error 710. As a rule an index was out of range: a label that is not below the number of
classes, a token that is not below the size of the vocabulary, a position beyond the longest one.

## How it is told apart

The error 710, "device-side assert triggered", in torch's own text. It is as sure as it is that the exception ended the
process. The place is another matter: kernels run behind the program, and the line in the traceback is the one that
*noticed*, often far from the one that started the kernel.

## What to do

1. Run once with `CUDA_LAUNCH_BLOCKING=1`: the line in the traceback is then the right one.
2. Or run that batch on the CPU: the same mistake is then an IndexError with a text.
3. Look above in the output for `Assertion ... failed`, which names the kernel's file and the check.

## Seen in the field

- huggingface/trl#2996, EleutherAI/lm-evaluation-harness#2293: "indexSelectLargeIndex: ... Assertion `srcIndex <
  srcSelectDimSize` failed": an embedding was asked for a row that it does not have.
- "nll_loss_forward ... Assertion `t >= 0 && t < n_classes` failed": labels from 1 instead of 0, or an unmasked -1.

## References

- CUDA Runtime API, cudaErrorAssert (710); CUDA C++ Programming Guide, "Assertion"
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
REFINES = (REFINED, "cuda-error")


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.DEVICE_ASSERT)
    if found is None:
        return
    why = "which call started the kernel that failed: the traceback shows the one that noticed"
    yield finding(
        found,
        "cuda-device-assert",
        "A check in a GPU kernel failed, as a rule an index out of range",
        unknown=[Gap("exception", why, "CUDA_LAUNCH_BLOCKING=1 python ...")],
        remedies=[
            Remedy("Run once so that each kernel is waited for: the line is then the right one",
                   "CUDA_LAUNCH_BLOCKING=1 python ...", settles=True),
            Remedy("Check labels against the number of classes, and token ids against the size of the vocabulary"),
            Remedy("Run that batch on the CPU: the same mistake is then an IndexError with a text"),
        ],
    )  # fmt: skip

"""The loss was not a number any more, and the training stopped itself.

## What it means

The loss became NaN or infinite. Every number computed from such a one is lost too, so the program, or the trainer that
it uses, checks for it and raises an exception. Nothing is wrong with the machine: the numbers went wrong, by a learning
rate too high, a value that fp16 cannot hold, a division by zero, a logarithm of zero, or a broken sample.

## How it is told apart

An exception whose own words say that the loss is NaN or infinite, raised by the program's own code or by a trainer that
is known to check: the words count only together with that origin. From another library, or with no place known, they
are possible at most. A file's name or a quoted text with such words is none.

## What to do

1. `torch.autograd.set_detect_anomaly(True)` for a run from the last checkpoint: the operation that made the first NaN
   in the backward pass is then named (slow).
2. Lower the learning rate, clip gradients, use bf16 in place of fp16, or a larger epsilon.
3. Look at the batch of that step: empty sequences, labels all masked, values that are NaN already.

## Seen in the field

- facebookresearch/detectron2#214: "FloatingPointError: Loss became infinite or NaN at iteration=...": a learning rate
  made for eight GPUs on one.
- "Current loss scale already at minimum - cannot decrease scale anymore" (DeepSpeed, fp16): gradients overflow at every
  scale.

## References

- PyTorch documentation, `torch.autograd.set_detect_anomaly`, "Automatic Mixed Precision"
- Lightning documentation, `detect_anomaly`
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, raised_below, raised_by_own_code, refinement
from ftforensics.model.basics import Gap
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)
# Who checks the loss for the program; torch's anomaly mode names the operation.
_TRAINERS = (
    "/torch/autograd/", "/lightning/", "/pytorch_lightning/", "/deepspeed/", "/apex/", "/fairseq/", "/detectron2/",
    "/transformers/", "/accelerate/", "/trl/", "/megatron/", "/nemo/", "/mmengine/", "/axolotl/", "/llamafactory/",
)  # fmt: skip


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.NAN)
    if found is None:
        return
    known = raised_by_own_code(found.failure) or raised_below(found.failure, *_TRAINERS)
    yield finding(
        found,
        "loss-nan",
        "The loss was not a number any more",
        confidence=None if known else Confidence.POSSIBLE,
        unknown=[Gap("job", "which operation made the first one", "torch.autograd.set_detect_anomaly(True)")],
        remedies=[
            Remedy(
                "Run from the last checkpoint with torch naming the operation that made the first NaN",
                "torch.autograd.set_detect_anomaly(True)",
                settles=True,
            ),
            Remedy("Lower the learning rate, clip the gradients, or use bf16 in place of fp16"),
            Remedy("Look at the batch of that step: masked labels only, empty sequences, values that are NaN already"),
        ],
    )

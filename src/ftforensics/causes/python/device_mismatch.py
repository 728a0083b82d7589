"""Tensors of one operation were on different devices.

## What it means

An operation needs all its tensors on one device. A part of the model, a batch or an index stayed on the CPU while the
rest was on a GPU, or two ranks' worth of a model were spread over two cards.

## How it is told apart

torch's own text, by which it refuses before it computes anything, under `RuntimeError`. It is as sure as it is that the
exception ended the process; without a place it is possible.

## What to do

1. Move what the text names: `tensor.to(model.device)`, and buffers by `register_buffer` so that they move along.
2. With `device_map="auto"` send the inputs where the first layer is; a loss needs its labels where the logits are.

## Seen in the field

- coqui-ai/TTS#1979: one submodule was built in the forward pass and never moved.
- haoosz/ConceptExpress#5: indices on the CPU, the embedding on the GPU.

## References

- PyTorch documentation, "Tensor Attributes" (torch.device), `Module.register_buffer`
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.raised import place_text
from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.DEVICES)
    if found is None:
        return
    two = f" ({found.subject.what})" if found.subject.what else ""
    where = f" at {place_text(found.own.place)}" if found.own.place is not None else ""
    yield finding(
        found,
        "device-mismatch",
        f"Tensors of one operation were on different devices{two}",
        remedies=[
            Remedy(f"Print the device of each tensor{where}, and move the one that differs: tensor.to(other.device)"),
            Remedy("Make constants of a module buffers, so that .to() moves them: self.register_buffer(name, tensor)"),
        ],
    )

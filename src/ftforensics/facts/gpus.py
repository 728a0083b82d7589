"""GPU models and architectures: compute capability, and which drivers and CUDA versions still serve it."""

from __future__ import annotations

import msgspec


class Architecture(msgspec.Struct, frozen=True):
    """capability: "7.0"; last_driver: the last driver branch that runs it, None: still served; first_cuda, last_cuda:
    of the compilers that make code for it."""

    name: str
    capability: str
    first_cuda: str | None
    last_cuda: str | None
    last_driver: int | None
    source: str


def architectures() -> tuple[Architecture, ...]:
    raise NotImplementedError


def architecture(capability: str) -> Architecture | None:
    raise NotImplementedError


def capability_of(name: str) -> str | None:
    """Compute capability of a GPU by the name that NVML gives it ("NVIDIA A100-SXM4-80GB" -> "8.0"); None: unknown."""
    raise NotImplementedError


def is_data_center(name: str) -> bool | None:
    """Is forward compatibility supported on it? None: unknown model."""
    raise NotImplementedError

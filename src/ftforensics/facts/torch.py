"""Published torch wheels: which CUDA, Pythons, GPU architectures and companions each one goes with."""

from __future__ import annotations

import msgspec


class Wheel(msgspec.Struct, frozen=True):
    """One torch release for one CUDA variant, Linux. variant: "cu128"; cuda: "12.8"; default: what a plain
    `pip install torch` brings; pythons: "3.10"; machines: "x86_64", "aarch64"; architectures: compute capabilities of
    its device code, [] where no source lists them; cudnn, nccl, triton: versions that it pins or bundles, None where no
    source says; torchvision, torchaudio: the versions that go with it, None where no source says."""

    torch: str
    variant: str
    cuda: str
    default: bool
    pythons: list[str]
    machines: list[str]
    architectures: list[str] = []
    cudnn: str | None = None
    nccl: str | None = None
    triton: str | None = None
    torchvision: str | None = None
    torchaudio: str | None = None
    source: str = ""


def wheels() -> tuple[Wheel, ...]:
    """All of them, oldest first."""
    raise NotImplementedError


def find_wheel(torch: str, variant: str | None = None) -> Wheel | None:
    """`torch`: "2.9.1" or "2.9.1+cu128"; without a variant the default one of PyPI."""
    raise NotImplementedError


def companions(torch: str) -> tuple[str | None, str | None]:
    """(torchvision, torchaudio) of a torch release, by its version without the local part."""
    raise NotImplementedError

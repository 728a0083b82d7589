"""Versions as a pip command wants them."""

from __future__ import annotations

import shlex

from ftforensics.causes.library_set import variant_of
from ftforensics.facts.choose import INDEX
from ftforensics.facts.torch import companions, find_wheel
from ftforensics.model.software import TorchBuild


def base(version: str) -> str:
    """Without the local part, which no index but torch's own has: "2.5.1+cu121" -> "2.5.1"."""
    return version.partition("+")[0]


def companion_command(torch: TorchBuild, package: str) -> str | None:
    """The pip line that installs the torchvision or torchaudio of this torch, or builds another extension again."""
    if package not in ("torchvision", "torchaudio"):
        name = shlex.quote(package)
        return f"pip install --force-reinstall --no-deps --no-binary {name} --no-build-isolation {name}"
    version = companions(base(torch.version))[0 if package == "torchvision" else 1]
    if version is None:
        return None
    variant = variant_of(torch)
    wheel = find_wheel(base(torch.version), variant)
    index = "" if variant is None or (wheel and wheel.default) else f" --index-url {INDEX}/{variant}"
    return f"pip install --force-reinstall --no-deps {package}=={version}{index}"

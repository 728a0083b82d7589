"""Versions as a pip command wants them."""

from __future__ import annotations

import re
import shlex

from ftforensics.causes.library_evidence import reinstall_torch
from ftforensics.causes.library_set import variant_of
from ftforensics.facts.choose import INDEX
from ftforensics.facts.torch import COMPANIONS, companions, find_wheel
from ftforensics.model.diagnosis import Remedy
from ftforensics.model.software import TorchBuild

_PLAIN = re.compile(r"[0-9][0-9A-Za-z.]{0,40}(\+(cpu|cu\d{2,4}|rocm\d[\d.]*|xpu))?")


def base(version: str) -> str:
    """Without the local part, which no index but torch's own has: "2.5.1+cu121" -> "2.5.1"."""
    return version.partition("+")[0]


def torch_again(torch: TorchBuild) -> Remedy:
    """The same torch once more, with what belongs to it: a newer one may need another driver."""
    known = reinstall_torch(torch)
    if known is not None:
        return known
    version, _, local = torch.version.partition("+")
    if not _PLAIN.fullmatch(torch.version) or torch.origin not in (None, "wheel", "conda"):
        return Remedy("Install torch and its libraries again, or build them again")
    if torch.origin == "conda":
        return Remedy("Install torch and its libraries again", f"conda install --force-reinstall pytorch={version}")
    index = f" --index-url {INDEX}/{local}" if local else ""
    return Remedy("Install torch and its libraries again", f"pip install --force-reinstall torch=={version}{index}")


def companion_command(torch: TorchBuild, package: str) -> str | None:
    """The pip line that installs the torchvision or torchaudio of this torch, or builds another extension again."""
    if package not in COMPANIONS:
        name = shlex.quote(package)
        return f"pip install --force-reinstall --no-deps --no-binary {name} --no-build-isolation {name}"
    version = companions(base(torch.version))[COMPANIONS.index(package)]
    if version is None:
        return None
    variant = variant_of(torch)
    wheel = find_wheel(base(torch.version), variant)
    index = "" if variant is None or (wheel and wheel.default) else f" --index-url {INDEX}/{variant}"
    return f"pip install --force-reinstall --no-deps {package}=={version}{index}"

"""`torch/version.py` as text: importing torch may be what crashes.

As torch 2.9 to 2.13 write it (tools/generate_torch_version.py), older ones without the annotation:

    __version__ = '2.9.1+cu128'
    debug = False
    cuda: Optional[str] = '12.8'
    git_version = '...'
    hip: Optional[str] = None
"""

from __future__ import annotations

import re

import msgspec

_LINE = re.compile(r"^(__version__|cuda|hip)[ \t]*(?::[^=\n]*)?=[ \t]*['\"]([^'\"\n]{1,200})['\"]", re.MULTILINE)
_LOCAL = re.compile(r"\+(?:(cu)(\d{2,3})|(rocm)(\d+\.\d+(?:\.\d+)?))(?![0-9])")


class TorchVersion(msgspec.Struct, frozen=True):
    """cuda: "12.8", None for a build without; hip: ROCm's version."""

    version: str
    cuda: str | None = None
    hip: str | None = None


def torch_version(text: str) -> TorchVersion | None:
    """None when the text names no version."""
    values: dict[str, str] = {}
    for name, value in _LINE.findall(text):
        values.setdefault(name, value)
    if "__version__" not in values:
        return None
    return TorchVersion(values["__version__"], values.get("cuda"), values.get("hip"))


def of_local_version(version: str) -> tuple[str | None, str | None]:
    """(cuda, hip) that the part behind "+" names: "2.5.1+cu121" -> ("12.1", None), "2.4.0+rocm6.1" -> (None, "6.1").

    cu102 is 10.2 and cu92 is 9.2: the last digit is the minor version.
    """
    found = _LOCAL.search(version)
    if found is None:
        return None, None
    return (f"{found[2][:-1]}.{found[2][-1]}", None) if found[1] else (None, found[4])

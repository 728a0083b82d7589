"""What a shared library says about itself: NCCL's text, nvJitLink's exported names, NVRTC's neighbour.

Measured on nvidia-nccl-cu12 2.27.5 and nvidia-nvjitlink-cu12 12.8.93. libcudart and libcudnn hold no such text; numbers
that look like versions in libcudnn's parts belong to other things, so no general search is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NCCL_ANCHOR = b"NCCL version "
_NCCL = re.compile(rb"NCCL version (\d+\.\d+(?:\.\d+)?(?:\+cuda\d+\.\d+)?)[\x00\n ]")
_NVJITLINK = re.compile(r"^_{0,2}nvJitLinkComplete_(\d+)_(\d+)$")
_BUILTINS = re.compile(r"^libnvrtc-builtins\.so\.(\d+\.\d+)")


def nccl_version(excerpt: bytes) -> str | None:
    """ "2.27.5+cuda12.9" from bytes that start at `NCCL_ANCHOR`; None for the format string "NCCL version %d"."""
    found = _NCCL.match(excerpt + b"\0")
    return found[1].decode() if found else None


def nvjitlink_version(exported: Iterable[str]) -> str | None:
    """ "12.8": each minor version adds one `__nvJitLinkComplete_MAJOR_MINOR`; the highest is the library's own."""
    versions = [(int(m[1]), int(m[2])) for name in exported if (m := _NVJITLINK.match(name))]
    return "{}.{}".format(*max(versions)) if versions else None


def nvrtc_version(neighbours: Iterable[str]) -> str | None:
    """ "12.8" from the file names beside libnvrtc: NVRTC loads `libnvrtc-builtins.so.MAJOR.MINOR` of its own version.

    None when two different ones lie there.
    """
    versions = {m[1] for name in neighbours if (m := _BUILTINS.match(name))}
    return versions.pop() if len(versions) == 1 else None

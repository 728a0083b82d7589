"""The NVIDIA kernel module's version and library file names.

`/proc/driver/nvidia/version` (wording of 390 to 595 drivers, closed and open modules):

    NVRM version: NVIDIA UNIX x86_64 Kernel Module  530.30.02  Wed Feb 22 04:11:39 UTC 2023
    NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder@...)  ...
"""

from __future__ import annotations

import re

_MODULE = re.compile(r"^NVRM version:.*?Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)?)\s", re.MULTILINE)
_BARE = re.compile(r"^\d+\.\d+(?:\.\d+)?$")
_FILE = re.compile(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")


def module_version(text: str) -> str | None:
    """The version in /proc/driver/nvidia/version ("530.30.02"), None when the text is something else."""
    found = _MODULE.search(text + "\n")
    return found[1] if found else None


def bare_version(text: str) -> str | None:
    """The version in /sys/module/nvidia/version, a single line."""
    text = text.strip()
    return text if _BARE.match(text) else None


def file_version(path: str) -> str | None:
    """Driver version in the name of a user-space driver library: ".../libcuda.so.530.30.02" -> "530.30.02".

    None for `libcuda.so.1` (a link that was not followed) and WSL's `libcuda.so.1.1`, which carries no driver version.
    """
    found = _FILE.search(path)
    return found[1] if found else None

"""Which Python environment a live process runs in, by how its interpreter was started."""

from __future__ import annotations

import os

from ftforensics.host.host import Host, Refusal
from ftforensics.sources import process_environment

_SIGNS = ("pyvenv.cfg", "conda-meta", "bin/python", "bin/python3")


def is_environment(host: Host, prefix: str) -> bool:
    """Is this the folder of a Python environment: a venv, a conda environment, an installation?"""
    return any(host.exists(f"{prefix}/{name}") for name in _SIGNS)


def environment_of(host: Host, pid: int, files: Host | None = None) -> str | None:
    """The prefix of a process that is a Python; None for another program. files: where the paths that the process sees
    lie, when they are another container's.

    A venv's interpreter is a link to another's: the name by which it was started tells which venv, as it does to the
    interpreter itself (PEP 405)."""
    files = files or host
    try:
        program = host.real_path(f"/proc/{pid}/exe")
        if not os.path.basename(program).startswith("python"):
            return None
        first = os.fsdecode(host.read_start(f"/proc/{pid}/cmdline", process_environment.LIMIT).partition(b"\0")[0])
        cwd = "" if first.startswith("/") else host.real_path(f"/proc/{pid}/cwd")
        places = [first] if "/" in first else [f"{folder}/{first}" for folder in _search_path(host, pid) if first]
    except Refusal:
        return None
    for place in (os.path.join(cwd, place) for place in places):
        if not files.exists(place):
            continue
        prefix = os.path.normpath(f"{os.path.dirname(place)}/..")
        if files.exists(f"{prefix}/pyvenv.cfg"):
            return prefix
        break
    return os.path.dirname(os.path.dirname(program)) or None


def _search_path(host: Host, pid: int) -> list[str]:
    return os.fsdecode(process_environment.variable(host, pid, b"PATH") or b"").split(":")

"""Will the run folder still be there when the container is gone?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ftforensics.capture.cgroup import read_mountinfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MARKS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
_VARIABLES = ("KUBERNETES_SERVICE_HOST", "container")
# A container's own writable layer, and memory.
_PASSING = ("overlay", "aufs", "fuse-overlayfs", "tmpfs", "ramfs")


def passing_file_system(
    path: str, environ: Mapping[str, str], mounts: str | None = None, marks: Sequence[str] = MARKS
) -> str | None:
    """The type of the file system that goes with this container; None outside of one, and for a volume.

    mounts: the text of /proc/self/mountinfo; marks: files that a container has."""
    text = read_mountinfo() if mounts is None else mounts
    inside = any(os.path.exists(mark) for mark in marks) or any(environ.get(name) for name in _VARIABLES)
    if not inside and _type_at(text, "/") not in ("overlay", "aufs", "fuse-overlayfs"):
        return None
    kind = _type_at(text, os.path.realpath(path))
    return kind if kind in _PASSING else None


def _type_at(mounts: str, path: str) -> str | None:
    """Of the mount that `path` lies in: the longest mount point, the last one of equals (man 5 proc_pid_mountinfo)."""
    best, kind = -1, None
    for line in mounts.splitlines():
        words = line.split(" ")
        if "-" not in words or len(words) < 8:
            continue
        point = words[4].replace("\\040", " ").rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(point) >= best:
            best, kind = len(point), words[words.index("-") + 1]
    return kind

"""Paths of control groups: which one a process is in, and which stretch of the path is one job, container or unit.

Pure. A path is below its hierarchy's mount and begins with "/".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# The directory that is the unit, by what makes it. Everything below belongs to the same unit.
_UNITS = (
    re.compile(r"^job_\d+$"),  # Slurm: .../job_4411/step_0/task_3 (v1), .../slurmstepd.scope/job_4411/... (v2)
    re.compile(r"^(?:kubepods-(?:[a-z]+-)?)?pod[0-9a-fA-F_-]{8,}(?:\.slice)?$"),  # a pod, cgroupfs and systemd driver
)
_CONTAINER = re.compile(r"(?:^|[/:.-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_SYSTEMD = re.compile(r".+\.(?:service|scope)$")
_NOT_A_JOB = frozenset({"slurmstepd.scope", "init.scope"})


def memory_path(lines: Sequence[str]) -> str | None:
    """The path of the memory group in the lines of /proc/PID/cgroup ("4:memory:/a/b" or "0::/a/b", man 7 cgroups);
    version 1 is preferred, because a controller is in one hierarchy only. None when there is neither."""
    unified = None
    for line in lines:
        number, _, rest = line.strip().partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            return path or "/"
        if number == "0" and not controllers:
            unified = path or "/"
    return unified


def ancestry(path: str) -> list[str]:
    """The group itself and every one above it, "/" last."""
    found = []
    at = path.rstrip("/")
    while at:
        found.append(at)
        at = at.rpartition("/")[0]
    return [*found, "/"]


def is_at_or_below(path: str, other: str) -> bool:
    """Is `path` the group `other` or one below it?"""
    base = other.rstrip("/")
    return path == other or path.rstrip("/") == base or path.startswith(base + "/")


def unit_of(path: str) -> str | None:
    """The path of the job, pod, container or systemd unit that this group is part of; None when none is recognised.

    The outermost job or pod counts; else the container; else the innermost systemd unit.
    """
    parts = path.strip("/").split("/")
    for index, part in enumerate(parts):
        if any(unit.match(part) for unit in _UNITS):
            return "/" + "/".join(parts[: index + 1])
    for index, part in enumerate(parts):
        if _CONTAINER.search("/" + part):
            return "/" + "/".join(parts[: index + 1])
    for index in range(len(parts) - 1, -1, -1):
        if _SYSTEMD.match(parts[index]) and parts[index] not in _NOT_A_JOB:
            return "/" + "/".join(parts[: index + 1])
    return None


def container_id(path: str) -> str | None:
    """The 64 hex digits of a container in a group's path."""
    found = _CONTAINER.search(path)
    return found[1] if found else None

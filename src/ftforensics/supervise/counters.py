"""The machine's memory counters at this moment, for the line `counted` (`model.reading.Reading` as JSON).

`sources` has the analyser's own, typed reading of the same files. This one works without msgspec, and keeps to what
brackets a death: limits, usage and event counters of a control group and all above it, and of the machine.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ftforensics.capture import procfs
from ftforensics.parsers import proc_text

if TYPE_CHECKING:
    from ftforensics.capture.identity import Value

ROOT = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60  # version 1 writes "none" as the largest multiple of the page size below 2^63


def reading(cgroup_lines: list[str], root: str = ROOT) -> dict[str, Value]:
    """cgroup_lines: of /proc/PID/cgroup of the process whose groups are wanted."""
    memory = _fields("/proc/meminfo", ":", 1024)
    pressure = proc_text.avg10(procfs.read_text("/proc/pressure/memory", 512) or "")
    shared = _room("/dev/shm")
    return {
        "moment": {
            "realtime": time.time(),
            "monotonic": time.monotonic(),
            "boot_id": boot_id(),
        },
        "source": "run",
        "groups": groups(cgroup_lines, root),
        "oom_kill": _fields("/proc/vmstat", " ", 1).get("oom_kill"),
        "mem_total": memory.get("MemTotal"),
        "mem_available": memory.get("MemAvailable"),
        "mem_shmem": memory.get("Shmem"),
        "swap_free": memory.get("SwapFree"),
        "psi_some": pressure.get("some"),
        "psi_full": pressure.get("full"),
        "shm_used": shared[0],
        "shm_size": shared[1],
    }


def boot_id() -> str | None:
    text = procfs.read_text("/proc/sys/kernel/random/boot_id", 64)
    return text.strip() if text else None


def groups(cgroup_lines: list[str], root: str = ROOT) -> list[Value]:
    """Each level, the process's own first, up to the root that can be seen."""
    for line in cgroup_lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            return _chain(f"{root}/memory", path, 1)
        if number == "0" and not controllers and os.path.exists(f"{root}/cgroup.controllers"):
            return _chain(root, path, 2)
    return []


def _chain(mount: str, path: str, version: int) -> list[Value]:
    at = path.rstrip("/")
    if not os.path.isdir(mount + at):
        at = ""  # the path is the host's, and a container's mount shows our own group at its top
    levels: list[Value] = []
    while True:
        level = (_first_version if version == 1 else _second_version)(mount + at)
        try:
            inode = os.stat(mount + at).st_ino
        except OSError:
            inode = None
        levels.append({"path": at or "/", "version": version, **level, "inode": inode})
        if not at or len(levels) > 64:
            return levels
        at = at.rpartition("/")[0]


def _first_version(folder: str) -> dict[str, Value]:
    use = _fields(f"{folder}/memory.stat", " ", 1)
    return {
        "usage": _number(f"{folder}/memory.usage_in_bytes"),
        "limit": _number(f"{folder}/memory.limit_in_bytes"),
        "peak": _number(f"{folder}/memory.max_usage_in_bytes"),
        "anon": use.get("total_rss", use.get("rss")),
        "file": use.get("total_cache", use.get("cache")),
        "shmem": use.get("total_shmem", use.get("shmem")),
        "oom_kill": _fields(f"{folder}/memory.oom_control", " ", 1).get("oom_kill"),
        "failcnt": _number(f"{folder}/memory.failcnt"),
        "processes": _lines(f"{folder}/cgroup.procs"),
    }


def _second_version(folder: str) -> dict[str, Value]:
    use = _fields(f"{folder}/memory.stat", " ", 1)
    events = _fields(f"{folder}/memory.events", " ", 1)
    local = _fields(f"{folder}/memory.events.local", " ", 1)
    return {
        "usage": _number(f"{folder}/memory.current"),
        "limit": _number(f"{folder}/memory.max"),
        "high": _number(f"{folder}/memory.high"),
        "peak": _number(f"{folder}/memory.peak"),
        "anon": use.get("anon"),
        "file": use.get("file"),
        "shmem": use.get("shmem"),
        "swap": _number(f"{folder}/memory.swap.current"),
        "oom": events.get("oom"),
        "oom_kill": events.get("oom_kill"),
        "oom_group_kill": events.get("oom_group_kill"),
        "max_events": events.get("max"),
        "local_oom": local.get("oom"),
        "local_oom_kill": local.get("oom_kill"),
        "processes": _lines(f"{folder}/cgroup.procs"),
    }


def _number(path: str) -> int | None:
    """None when there is no such file or no limit ("max")."""
    text = (procfs.read_text(path, 64) or "").strip()
    if not text.isdigit() or int(text) >= _NO_LIMIT:
        return None
    return int(text)


def _lines(path: str) -> int | None:
    text = procfs.read(path, 1 << 20)
    return None if text is None else text.count(b"\n")


def _fields(path: str, separator: str, unit: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in (procfs.read_text(path) or "").splitlines():
        name, _, rest = line.partition(separator)
        word = rest.split(maxsplit=1)[:1]
        if word and word[0].isdigit():
            found[name] = int(word[0]) * unit
    return found


def _room(path: str) -> tuple[int | None, int | None]:
    """(used, size) of a file system, bytes."""
    try:
        system = os.statvfs(path)
    except OSError:
        return None, None
    return (system.f_blocks - system.f_bfree) * system.f_frsize, system.f_blocks * system.f_frsize

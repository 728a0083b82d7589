"""Files of the memory controller and the lines of /proc/PID/cgroup (man 7 cgroups).

Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""

from __future__ import annotations

import msgspec

from ftforensics.parsers.proc_files import Mount, whole

# Version 1 writes "no limit" as the largest multiple of the page size below 2^63.
_NO_LIMIT = 1 << 60


class MemoryGroup(msgspec.Struct, frozen=True):
    """Where a process's memory is counted. path: below the hierarchy's root, or below the root of the reader's cgroup
    namespace, then with ".." for what lies outside; removed: the kernel says that the group is gone."""

    version: int
    path: str
    removed: bool = False


class MemoryStat(msgspec.Struct, frozen=True):
    """Bytes of the group and all below it. file: page cache, with shmem."""

    anon: int | None = None
    file: int | None = None
    shmem: int | None = None
    swap: int | None = None


class MemoryEvents(msgspec.Struct, frozen=True):
    """Of memory.events or memory.events.local; None: this kernel does not count it."""

    max: int | None = None
    oom: int | None = None
    oom_kill: int | None = None
    oom_group_kill: int | None = None


def memory_groups(lines: list[str]) -> list[MemoryGroup]:
    """Version 1 first: where both are mounted, a controller is in one of them only, and a line with "memory" says that
    it is version 1."""
    found = []
    for line in lines:
        number, _, rest = line.rstrip("\n").partition(":")
        controllers, separator, path = rest.partition(":")
        if not separator or not path.startswith("/"):
            continue
        if "memory" in controllers.split(","):
            found.append(_group(1, path))
        elif number == "0" and not controllers:
            found.append(_group(2, path))
    return sorted(found, key=lambda group: group.version)


def _group(version: int, path: str) -> MemoryGroup:
    removed = path.endswith(" (deleted)")
    return MemoryGroup(version, path.removesuffix(" (deleted)"), removed)


def hierarchy(mounts: list[Mount], version: int) -> list[Mount]:
    """Where the hierarchy that may hold the memory controller is mounted, the fullest view first."""
    kind = "cgroup2" if version == 2 else "cgroup"
    found = [mount for mount in mounts if mount.kind == kind and (version == 2 or "memory" in mount.options)]
    return sorted(found, key=lambda mount: len(mount.root))


def numbers(text: str) -> dict[str, int]:
    """The index of a file of "name number" lines, as memory.stat, memory.oom_control and /proc/vmstat are."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if (number := whole(value)) is not None:
            found[name] = number
    return found


def amount(text: str) -> int | None:
    """Bytes; None for "max" and version 1's way of saying it, and for what is no number."""
    number = whole(text)
    return None if number is None or number >= _NO_LIMIT else number


def stat_v1(text: str) -> MemoryStat:
    """The total_* lines: usage counts what is below too."""
    values = numbers(text)
    return MemoryStat(
        anon=values.get("total_rss"),
        file=values.get("total_cache"),
        shmem=values.get("total_shmem"),
        swap=values.get("total_swap"),
    )


def stat_v2(text: str) -> MemoryStat:
    values = numbers(text)
    return MemoryStat(anon=values.get("anon"), file=values.get("file"), shmem=values.get("shmem"))


def events(text: str) -> MemoryEvents:
    values = numbers(text)
    return MemoryEvents(
        max=values.get("max"),
        oom=values.get("oom"),
        oom_kill=values.get("oom_kill"),
        oom_group_kill=values.get("oom_group_kill"),
    )


def kills_v1(text: str) -> int | None:
    """oom_kill of memory.oom_control (since Linux 4.13)."""
    return numbers(text).get("oom_kill")

"""Memory counters, limits and use of a process's control groups and of the machine, read now.

Every level of the chain counts: the limit that bites is often an ancestor's (a pod, a Slurm job, a user's slice). Both
cgroup versions, also where both are mounted. Counters end with their group, so that after a death the group may be gone
and only what is above it left.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.moment import Moment
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.parsers import cgroup_files, proc_files
from ftforensics.parsers.cgroup_files import MemoryEvents, MemoryGroup, MemoryStat
from ftforensics.parsers.proc_files import Memory, Mount, Pressure

SOURCE = "cgroup"
MOUNTS = "/proc/self/mountinfo"
_SMALL = 64 << 10  # bytes; the largest, memory.stat of version 1, has 3 KB
_MOUNTS_LIMIT = 4 << 20  # a node with hundreds of containers has thousands of mounts
_PROCESSES_LIMIT = 1 << 20
_LEVELS = 64  # deeper than any real chain; the lines may come from a record
_PATH_LIMIT = 4096  # PATH_MAX
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)  # a file of a group removed after it was opened gives ENODEV
_RECORDER = "ftforensics install() or run records them while the group lives"

_Value = TypeVar("_Value")


class _Place(msgspec.Struct, frozen=True):
    """Where a group's directory is. top: the mount point, where the chain ends; below: the path from there; hidden: the
    part of the group's path above the mount's root, which cannot be seen here."""

    mount: Mount
    top: str
    below: str
    hidden: str


def read_counters(host: Host, cgroup_lines: list[str], moment: Moment) -> tuple[Reading, list[Gap]]:
    """cgroup_lines: of the process's /proc/PID/cgroup, as it saw it itself; where its cgroup namespace is not ours they
    name other groups, so ask `identity_here.same_machine` first. moment: when this is read."""
    groups, gaps = _groups(host, cgroup_lines)
    kills = _asked(host, "/proc/vmstat", lambda text: cgroup_files.numbers(text).get("oom_kill"), "vmstat", gaps)
    if kills is None and not any(gap.source == "vmstat" for gap in gaps):
        gaps.append(Gap("vmstat", "this kernel does not count OOM kills in /proc/vmstat (before Linux 4.13)"))
    memory = _asked(host, "/proc/meminfo", proc_files.memory, "meminfo", gaps) or Memory()
    pressure = (
        _asked(host, "/proc/pressure/memory", proc_files.pressure, "psi", gaps, "boot with psi=1 (Linux 4.20 or later)")
        or Pressure()
    )
    size, used = _shared_memory(host, gaps)
    reading = Reading(
        moment=moment,
        source="now",
        groups=groups,
        oom_kill=kills,
        mem_total=memory.total,
        mem_available=memory.available,
        mem_shmem=memory.shmem,
        swap_free=memory.swap_free,
        psi_some=pressure.some,
        psi_full=pressure.full,
        shm_used=used,
        shm_size=size,
    )
    return reading, gaps


def _asked(
    host: Host, path: str, parse: Callable[[str], _Value], source: str, gaps: list[Gap], grant: str | None = None
) -> _Value | None:
    try:
        return parse(host.read_text(path, 1 << 20))
    except Refusal as refusal:
        gaps.append(refusal.gap(source, grant))
        return None


def _shared_memory(host: Host, gaps: list[Gap]) -> tuple[int | None, int | None]:
    """Size and use of /dev/shm in bytes."""
    try:
        room = host.statvfs("/dev/shm")
    except Refusal as refusal:
        if host.live:
            gaps.append(refusal.gap("shm"))
        return None, None
    return room.f_blocks * room.f_frsize, (room.f_blocks - room.f_bfree) * room.f_frsize


def _groups(host: Host, lines: list[str]) -> tuple[list[GroupReading], list[Gap]]:
    """Own group first. Version 1 where it has the controller, else version 2."""
    groups = cgroup_files.memory_groups(lines)
    if not groups:
        return [], [Gap(SOURCE, "it is not known which control groups the process was in", _RECORDER)]
    try:
        mounts = proc_files.mounts(host.read_text(MOUNTS, _MOUNTS_LIMIT))
    except Refusal as refusal:
        return [], [refusal.gap(SOURCE)]
    group = groups[0]
    place = _place(host, group, mounts)
    if isinstance(place, Gap):
        return [], [place]
    return _chain(host, group, place)


def _place(host: Host, group: MemoryGroup, mounts: list[Mount]) -> _Place | Gap:
    parts = group.path.split("/")
    if len(parts) > _LEVELS or len(group.path) > _PATH_LIMIT:
        return Gap(SOURCE, f"{group.path[:80]}... has {len(parts)} levels and is not taken for a group's path")
    if ".." in parts:
        return Gap(
            SOURCE, f"{group.path} lies outside the cgroup namespace seen here", "run ftforensics analyze on the node"
        )
    found = cgroup_files.hierarchy(mounts, group.version)
    if not found:
        kind = "cgroup2" if group.version == 2 else "cgroup -o memory"
        return Gap(SOURCE, f"the version {group.version} hierarchy is not mounted here", f"mount -t {kind} none /mnt")
    places = []
    for mount in found:
        root = mount.root.rstrip("/")
        if not root or group.path == root or group.path.startswith(root + "/"):
            places.append(_Place(mount, mount.point, group.path[len(root) :].rstrip("/"), root))
    if places:
        # One may be hidden below a later mount.
        return next((one for one in places if host.exists(one.top + one.below)), places[0])
    # A path from outside seen in a container (version 1 without a cgroup namespace shows the host's path, and mounts
    # may show another part): the mount's own root is a group above or beside, so it is not taken for the process's.
    shown = found[0]
    return Gap(SOURCE, f"{group.path} is not below {shown.root}, which is what {shown.point} shows here")


def _chain(host: Host, group: MemoryGroup, place: _Place) -> tuple[list[GroupReading], list[Gap]]:
    readings: list[GroupReading] = []
    gaps: list[Gap] = []
    if group.removed:
        gaps.append(Gap(SOURCE, f"{group.path} was removed; its counters ended with it", _RECORDER))
    below = place.below
    gone: str | None = None
    while True:
        path = place.hidden + below or "/"
        level = _level(host, group.version, path, place.top + below, own=below == place.below, mount=place.mount)
        if isinstance(level, GroupReading):
            readings.append(level)
        elif level is not None and level.absent:
            gone = gone or path
        elif level is not None:
            gaps.append(level.gap(SOURCE, "run ftforensics analyze as root"))
        if not below:
            break
        below = below.rpartition("/")[0]
    if gone and not group.removed:
        gaps.append(Gap(SOURCE, f"{gone} is gone; its counters ended with it", _RECORDER))
    if not readings and not gaps and group.version == 2 and group.path == "/":
        why = "the process was in the root group, which has no counters of its own"
        gaps.append(Gap(SOURCE, why, "start the job in a group: systemd-run --scope COMMAND"))
    elif not readings and not gaps:
        why = f"no group of {group.path} counts memory: the controller is not enabled"
        gaps.append(Gap(SOURCE, why, f"echo +memory > {place.top}/cgroup.subtree_control"))
    return readings, gaps


def _level(host: Host, version: int, path: str, folder: str, own: bool, mount: Mount) -> GroupReading | Refusal | None:
    """None: this level has no memory controller (version 2's root, or it is not enabled there)."""
    try:
        inode = host.stat(folder).st_ino
        read = _Files(host, folder)
        reading = _version1(read, path, inode) if version == 1 else _version2(read, path, inode, own, mount)
        # Removed while it was read, and perhaps made again: values of two groups under one name.
        if host.stat(folder).st_ino != inode:
            return Refusal(folder, "was replaced while it was read", errno.ENOENT)
    except Refusal as refusal:
        return Refusal(folder, refusal.reason, errno.ENOENT) if refusal.code in _GONE else refusal
    return reading


class _Files:
    """The small files of one group's directory."""

    def __init__(self, host: Host, folder: str) -> None:
        self._host = host
        self._folder = folder

    def amount(self, name: str) -> int | None:
        return self.parsed(name, cgroup_files.amount)

    def parsed(self, name: str, parse: Callable[[str], _Value]) -> _Value | None:
        """None when the kernel lacks the file. Raises Refusal when it is kept from us."""
        try:
            return parse(self._host.read_text(f"{self._folder}/{name}", _SMALL))
        except Refusal as refusal:
            # EOPNOTSUPP: cgroup.procs of a threaded group.
            if refusal.code in (*_GONE, errno.EOPNOTSUPP):
                return None
            raise

    def has(self, name: str) -> bool:
        return self._host.exists(f"{self._folder}/{name}")

    def processes(self) -> int | None:
        """How many; None for a list too long to be worth it."""
        try:
            return self._host.read_text(f"{self._folder}/cgroup.procs", _PROCESSES_LIMIT).count("\n")
        except Refusal:
            return None


def _version1(read: _Files, path: str, inode: int) -> GroupReading | None:
    if not read.has("memory.usage_in_bytes"):
        return None
    stat = read.parsed("memory.stat", cgroup_files.stat_v1) or MemoryStat()
    return GroupReading(
        path=path,
        version=1,
        usage=read.amount("memory.usage_in_bytes"),
        limit=read.amount("memory.limit_in_bytes"),
        peak=read.amount("memory.max_usage_in_bytes"),
        anon=stat.anon,
        file=stat.file,
        shmem=stat.shmem,
        swap=stat.swap,
        oom_kill=read.parsed("memory.oom_control", cgroup_files.kills_v1),
        failcnt=read.amount("memory.failcnt"),
        processes=read.processes(),
        inode=inode,
    )


def _version2(read: _Files, path: str, inode: int, own: bool, mount: Mount) -> GroupReading | None:
    """With the mount option memory_localevents, memory.events counts the group alone: the same for the process's own
    group, which has none below it, and no count of the whole for the others."""
    if not read.has("memory.current"):
        return None
    stat = read.parsed("memory.stat", cgroup_files.stat_v2) or MemoryStat()
    every = read.parsed("memory.events", cgroup_files.events) or MemoryEvents()
    local = read.parsed("memory.events.local", cgroup_files.events) or MemoryEvents()
    if "memory_localevents" in mount.options and not own:
        every, local = MemoryEvents(), every
    return GroupReading(
        path=path,
        version=2,
        usage=read.amount("memory.current"),
        limit=read.amount("memory.max"),
        high=read.amount("memory.high"),
        peak=read.amount("memory.peak"),
        anon=stat.anon,
        file=stat.file,
        shmem=stat.shmem,
        swap=read.amount("memory.swap.current"),
        oom=every.oom,
        oom_kill=every.oom_kill,
        oom_group_kill=every.oom_group_kill,
        local_oom=local.oom,
        local_oom_kill=local.oom_kill,
        max_events=every.max,
        processes=read.processes(),
        inode=inode,
    )

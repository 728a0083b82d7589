"""What this process, and so a job started from here, may use: processor, memory, limits, core files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.reading import Reading
from ftforensics.parsers import machine_text
from ftforensics.parsers.machine_text import Limit, Processor
from ftforensics.sources.counters import read_counters

CPUINFO = "/proc/cpuinfo"
LIMITS = "/proc/self/limits"
GROUPS = "/proc/self/cgroup"
CORE_PATTERN = "/proc/sys/kernel/core_pattern"
INFINIBAND = "/sys/class/infiniband"
_START = 64 << 10  # bytes of /proc/cpuinfo: the first processor; a node with 256 of them writes 400 KB

_Value = TypeVar("_Value")


class Machine(msgspec.Struct, frozen=True):
    """memory: counters of the machine and of our control groups; core_pattern: the kernel's text; infiniband: names of
    RDMA devices; shared_memory: there is a /dev/shm; gaps: of what could not be read."""

    name: str | None = None  # "x86_64"
    processor: Processor | None = None
    memory: Reading | None = None
    limits: list[Limit] = []
    core_pattern: str | None = None
    infiniband: list[str] = []
    shared_memory: bool = True
    gaps: list[Gap] = []

    def limit(self, name: str) -> Limit | None:
        return next((limit for limit in self.limits if limit.name == name), None)


def read_machine(host: Host) -> Machine:
    gaps: list[Gap] = []
    groups = _asked(host, GROUPS, str.splitlines, "cgroup", gaps) or []
    memory, refused = read_counters(host, groups, host.moment())
    return Machine(
        name=os.uname().machine if host.live else None,
        processor=_asked(host, CPUINFO, machine_text.processor, "cpu", gaps, start=_START),
        memory=memory,
        limits=_asked(host, LIMITS, machine_text.limits, "limits", gaps) or [],
        core_pattern=_asked(host, CORE_PATTERN, str.strip, "core files", gaps),
        infiniband=host.listed(INFINIBAND),
        shared_memory=host.exists("/dev/shm"),
        gaps=[*gaps, *refused],
    )


def _asked(
    host: Host, path: str, parse: Callable[[str], _Value], source: str, gaps: list[Gap], start: int | None = None
) -> _Value | None:
    try:
        if start is not None:
            return parse(host.read_start(path, start).decode("utf-8", "backslashreplace"))
        return parse(host.read_text(path, _START))
    except Refusal as refusal:
        gaps.append(refusal.gap(source))
        return None

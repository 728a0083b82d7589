"""What the machine's memory counters said at one moment: from a recorder's sample, from `run`, or read now."""

from __future__ import annotations

import msgspec

from ftforensics.model.moment import Moment


class GroupReading(msgspec.Struct, frozen=True):
    """One level of the cgroup chain. Sizes in bytes, limit None = none; counters since the group was made.

    oom: how often the limit of this group failed an allocation; oom_kill: processes of this group (v2: and below)
    killed by *any* OOM kill; local_oom_kill: memory.events.local. v1 has oom_kill (since 4.13) and failcnt only."""

    path: str  # below the hierarchy's mount, "/slurm/job_4411"
    version: int  # 1 or 2
    usage: int | None = None
    limit: int | None = None
    high: int | None = None
    peak: int | None = None
    anon: int | None = None
    file: int | None = None
    shmem: int | None = None
    swap: int | None = None
    oom: int | None = None
    oom_kill: int | None = None
    oom_group_kill: int | None = None
    local_oom: int | None = None
    local_oom_kill: int | None = None
    max_events: int | None = None
    failcnt: int | None = None
    processes: int | None = None
    inode: int | None = None  # of the group's directory: another one under the same name counts from zero


class Reading(msgspec.Struct, frozen=True):
    """All counters at one moment. groups: from the process's own group up to the root that can be seen.

    oom_kill: /proc/vmstat, all OOM kills of this machine since boot. psi: /proc/pressure/memory, percent."""

    moment: Moment
    source: str  # "ring", "run", "now"
    locator: str = ""  # for cites: "rank3.ring slow[12]"
    groups: list[GroupReading] = []
    oom_kill: int | None = None
    mem_total: int | None = None
    mem_available: int | None = None
    mem_shmem: int | None = None
    swap_free: int | None = None
    psi_some: float | None = None  # avg10
    psi_full: float | None = None  # avg10
    shm_used: int | None = None  # /dev/shm
    shm_size: int | None = None

"""The flight recorder's ring as typed values: the last minutes of a process that could not say goodbye.

`wire.ring` reads it, csrc/ftf_ring.h lays it out. Sizes are bytes, `at` is CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.crash import Sender
from ftforensics.model.reading import Reading


class RingProcess(msgspec.Struct, frozen=True):
    """Who wrote the ring. nspid: outermost visible namespace first; pid_namespace, cgroup_namespace: inode numbers of
    /proc/self/ns/*; uid_map: lines of /proc/self/uid_map; cgroup: lines of /proc/self/cgroup; container: id found in
    the cgroup path or mountinfo."""

    pid: int
    start_ticks: int | None = None
    ppid: int | None = None
    nspid: list[int] = []
    uid: int | None = None
    comm: str | None = None
    exe: str | None = None
    argv: list[str] = []  # redacted
    host: str | None = None
    boot_id: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    attempt: int | None = None  # torchrun's restart count
    fork_of: int | None = None  # pid of the parent that had install()ed
    worker_of: int | None = None  # pid of the rank, for a DataLoader or multiprocessing worker
    cgroup: list[str] = []
    container: str | None = None
    pid_namespace: int | None = None
    cgroup_namespace: int | None = None
    uid_map: list[str] = []
    cpu_limit_soft: int | None = None  # RLIMIT_CPU, seconds; None unlimited
    cpu_limit_hard: int | None = None


class FastSample(msgspec.Struct, frozen=True):
    """Ten times a second, or faster. usage: of the process's own memory group; limit is in the slow samples."""

    at: float
    rss_anon: int | None = None
    rss_file: int | None = None
    rss_shmem: int | None = None
    usage: int | None = None
    available: int | None = None  # MemAvailable


class ChildUse(msgspec.Struct, frozen=True):
    pid: int
    comm: str | None = None
    rss: int | None = None


class SlowSample(msgspec.Struct, frozen=True):
    """Once a second. reading: counters and limits; None parts are another rank's job on this node.
    children: the largest, of `children_count`."""

    at: float
    reading: Reading | None = None
    vm_size: int | None = None
    swap: int | None = None
    threads: int | None = None
    oom_score_adj: int | None = None
    cpu_seconds: float | None = None  # user + system, for RLIMIT_CPU
    children: list[ChildUse] = []
    children_count: int | None = None
    children_rss: int | None = None
    gpu_used: int | None = None
    gpu_total: int | None = None
    ppid: int | None = None


class RingSignal(msgspec.Struct, frozen=True):
    """A signal that arrived. fatal: its default action ends the process, and nothing else was installed for it."""

    at: float
    name: str
    number: int
    sender: Sender | None = None
    code: int | None = None
    fatal: bool = False


class RingMark(msgspec.Struct, frozen=True):
    """What the job said: kind "phase" (text: names joined by " > ", "" = none), "step" (text: the number), "note"."""

    at: float
    kind: str
    text: str


class ClockPair(msgspec.Struct, frozen=True):
    """The clocks at one instant, to convert between them."""

    realtime: float
    monotonic: float
    boottime: float


class RingEnd(msgspec.Struct, frozen=True):
    """How the process said goodbye: "exit", "crash" (see its record), "exec", "uninstall". None of them: ended unseen.
    The ring of an "exit" is there only when the status was another one than 0.
    recorder: trouble of the recorder itself ("a write to the ring's file failed"): samples may be missing."""

    how: str | None = None
    at: float | None = None
    code: int | None = None  # exit status, where the process ended with "exit" and another one than 0
    recorder: str | None = None


class Ring(msgspec.Struct, frozen=True):
    """clocks: first and last pair. The lists are in time order. step, phase, note: as last told.
    period: seconds between fast samples now; gaps: what of the file was unreadable."""

    process: RingProcess
    clocks: list[ClockPair] = []
    installed: float | None = None
    last: float | None = None  # time of the last sample of any kind
    period: float = 0.1
    fast: list[FastSample] = []
    slow: list[SlowSample] = []
    signals: list[RingSignal] = []
    marks: list[RingMark] = []
    phase: str | None = None
    phase_since: float | None = None
    step: int | None = None
    note: str | None = None
    thread_names: list[str] = []  # comms of the threads, for the kernel's lines
    end: RingEnd = RingEnd()
    version: str | None = None  # of ftforensics
    gaps: list[Gap] = []

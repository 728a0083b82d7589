"""Recorder rings made by hand: the layout of csrc/ftf_ring.h, stated once more and on purpose by byte offsets.

Nothing of `ftforensics` is imported here, so that a wrong layout in the reader cannot prove itself right.

    data = ring_bytes(pid=4242, rank=3, fast=[fast(99.9, rss_anon=7 << 30, usage=8 << 30)],
                      slow=[slow(99.0, groups=[group("/job", usage=8 << 30, limit=8 << 30, oom_kill=0)])],
                      signals=[sig(99.5, 15, pid=17, uid=0, fatal=True)], marks=[mark(90.0, "phase", "save")],
                      end="crash")

Times are seconds of CLOCK_MONOTONIC, sizes bytes, None = not known. `realtime` of a slow sample follows from `epoch`,
the wall clock at monotonic 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

UNKNOWN = (1 << 64) - 1
UNLIMITED = (1 << 64) - 2
BOOT_ID = "1f0c9e1e-6a43-4b7e-a6f1-f4c6a80d7a11"
EPOCH = 1764434300.0

HEADER_BYTES = 512
TABLE_AT = 232
# section: bytes of a slot. The first five are texts, whose size is the writer's choice.
SLOT = {"job": 2048, "process": 2048, "threads": 1024, "phase": 1024, "note": 1024,
        "step": 32, "fast": 64, "slow": 1736, "signals": 56, "marks": 256}  # fmt: skip
HOW = {None: 0, "exit": 1, "crash": 2, "exec": 3, "uninstall": 4}
KIND = {"phase": 1, "step": 2, "note": 3}
GROUP_FIELDS = ("usage", "limit", "high", "peak", "anon", "file", "shmem", "swap", "oom", "oom_kill",
                "oom_group_kill", "local_oom", "local_oom_kill", "max_events", "failcnt", "inode")  # fmt: skip


@dataclass(frozen=True)
class Fast:
    at: float
    rss_anon: int | None = None
    rss_file: int | None = None
    rss_shmem: int | None = None
    usage: int | None = None
    available: int | None = None


@dataclass(frozen=True)
class Group:
    """limit=None is "not known"; UNLIMITED says that there is none. Both read as None."""

    path: str
    version: int = 1
    values: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Child:
    pid: int
    comm: str = "python"
    rss: int | None = None


@dataclass(frozen=True)
class Slow:
    at: float
    groups: Sequence[Group] = ()
    children: Sequence[Child] = ()
    values: dict[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sig:
    at: float
    number: int
    pid: int | None = None
    uid: int = 0
    code: int = 0
    fatal: bool = False


@dataclass(frozen=True)
class Mark:
    at: float
    kind: str
    text: str


def fast(at: float, **sizes: int) -> Fast:
    return Fast(at, **sizes)


def group(path: str, version: int = 1, **values: int) -> Group:
    """values: usage, limit, high, peak, anon, file, shmem, swap, oom, oom_kill, oom_group_kill, local_oom,
    local_oom_kill, max_events, failcnt, inode."""
    return Group(path, version, values)


def slow(at: float, groups: Sequence[Group] = (), children: Sequence[Child] = (), **values: int | float) -> Slow:
    """values: vm_size, swap, threads, oom_score_adj, cpu_seconds, children_count, children_rss, gpu_used, gpu_total,
    oom_kill, mem_total, mem_available, mem_shmem, swap_free, psi_some, psi_full (percent), shm_used, shm_size, ppid."""
    return Slow(at, groups, children, values)


def sig(at: float, number: int, pid: int | None = None, uid: int = 0, code: int = 0, fatal: bool = False) -> Sig:
    """pid: of the sender; None: the kernel's own."""
    return Sig(at, number, pid, uid, code, fatal)


def mark(at: float, kind: str, text: str) -> Mark:
    """kind: "phase", "step" (text: the number) or "note"."""
    return Mark(at, kind, text)


class _Bytes:
    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def u32(self, at: int, value: int) -> None:
        self.data[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")

    def u64(self, at: int, value: int) -> None:
        self.data[at : at + 8] = (value & UNKNOWN).to_bytes(8, "little")

    def ns(self, at: int, seconds: float) -> None:
        self.u64(at, round(seconds * 1e9))

    def text(self, at: int, text: bytes) -> None:
        self.data[at : at + len(text)] = text

    def numbered(self, number: int) -> bytes:
        self.u64(0, number)
        self.u64(len(self.data) - 8, number)
        return bytes(self.data)


def _optional(value: int | None) -> int:
    return UNKNOWN if value is None else value


def _text_slot(size: int, number: int, at: float, text: bytes) -> bytes:
    made = _Bytes(size)
    made.ns(8, at)
    text = text[: size - 32]
    made.u32(16, len(text))
    made.text(24, text)
    return made.numbered(number)


def _fields(*pairs: tuple[str, object]) -> bytes:
    return b"".join(f"{key}={value}\0".encode() for key, value in pairs if value is not None)


def _step_slot(number: int, step: int) -> bytes:
    made = _Bytes(SLOT["step"])
    made.u64(16, step)
    return made.numbered(number)


def _fast_slot(number: int, sample: Fast) -> bytes:
    made = _Bytes(SLOT["fast"])
    made.ns(8, sample.at)
    sizes = (sample.rss_anon, sample.rss_file, sample.rss_shmem, sample.usage, sample.available)
    for index, value in enumerate(sizes):
        made.u64(16 + 8 * index, _optional(value))
    return made.numbered(number)


def _slow_slot(number: int, sample: Slow, epoch: float, chain: int) -> bytes:
    made = _Bytes(SLOT["slow"])
    values = dict(sample.values)

    def take(at: int, name: str, factor: float = 1, unknown: int = UNKNOWN) -> None:
        value = values.pop(name, None)
        made.u64(at, unknown if value is None else round(value * factor))

    made.ns(8, sample.at)
    made.ns(16, epoch + sample.at)
    made.ns(24, sample.at)
    take(32, "vm_size")
    take(40, "swap")
    take(48, "threads")
    take(56, "oom_score_adj", unknown=(1 << 63) - 1)
    take(64, "cpu_seconds", 1e9)
    values.setdefault("children_count", len(sample.children))
    values.setdefault("children_rss", sum(child.rss or 0 for child in sample.children))
    take(72, "children_count")
    take(80, "children_rss")
    take(88, "gpu_used")
    take(96, "gpu_total")
    take(104, "oom_kill")
    take(112, "mem_total")
    take(120, "mem_available")
    take(128, "mem_shmem")
    take(136, "swap_free")
    take(144, "psi_some", 100)
    take(152, "psi_full", 100)
    take(160, "shm_used")
    take(168, "shm_size")
    made.u32(176, int(values.pop("ppid", 0)))
    assert not values, f"no such figures: {sorted(values)}"
    made.u32(180, chain)
    made.u32(184, len(sample.groups))
    made.u32(188, len(sample.children))
    for index, child in enumerate(sample.children):
        at = 192 + 32 * index
        made.u32(at, child.pid)
        made.u64(at + 8, _optional(child.rss))
        made.text(at + 16, child.comm.encode()[:15])
    for index, level in enumerate(sample.groups):
        assert set(level.values) <= set(GROUP_FIELDS), level.values
        for place, name in enumerate(GROUP_FIELDS):
            made.u64(448 + 128 * index + 8 * place, _optional(level.values.get(name)))
    return made.numbered(number)


def _signal_slot(number: int, seen: Sig) -> bytes:
    made = _Bytes(SLOT["signals"])
    made.ns(8, seen.at)
    made.u32(16, seen.number)
    made.u32(20, seen.code)
    made.u32(24, seen.pid or 0)
    made.u32(28, seen.uid)
    made.u32(32, int(seen.pid is not None))
    made.u32(36, int(seen.fatal))
    return made.numbered(number)


def _mark_slot(number: int, said: Mark) -> bytes:
    made = _Bytes(SLOT["marks"])
    made.ns(8, said.at)
    made.u32(16, KIND[said.kind])
    if said.kind == "step":
        made.u64(24, int(said.text))
    else:
        text = said.text.encode()[:208]
        made.u32(20, len(text))
        made.text(40, text)
    return made.numbered(number)


def ring_bytes(
    *,
    pid: int = 4242,
    start_ticks: int = 98765,
    ppid: int = 4200,
    nspid: Sequence[int] | None = None,
    uid: int = 1000,
    comm: str = "python",
    exe: str = "/usr/bin/python3.11",
    argv: Sequence[str] = ("python", "train.py"),
    host: str = "gpu-07",
    boot_id: str = BOOT_ID,
    rank: int | None = None,
    local_rank: int | None = None,
    world_size: int | None = None,
    fork_of: int | None = None,
    worker_of: int | None = None,
    cgroup: Sequence[str] = (),
    container: str | None = None,
    pid_namespace: int | None = 4026531836,
    cgroup_namespace: int | None = 4026531835,
    uid_map: Sequence[str] = ("         0          0 4294967295",),
    cpu_limit_soft: int | None = None,
    cpu_limit_hard: int | None = None,
    installed: float = 10.0,
    epoch: float = EPOCH,
    period: float = 0.1,
    fast: Sequence[Fast] = (),
    slow: Sequence[Slow] = (),
    signals: Sequence[Sig] = (),
    marks: Sequence[Mark] = (),
    phase: str | None = None,
    phase_since: float | None = None,
    step: int | None = None,
    note: str | None = None,
    thread_names: Sequence[str] = ("python",),
    end: str | None = None,
    end_at: float | None = None,
    code: int = 0,
    attempt: int | None = None,
    trouble: int = 0,
    version: str = "0.1.0",
    spare: int = 2,
) -> bytes:
    """A whole ring. phase, step, note: as last told; left out, they follow from `marks`. end: "exit", "crash", "exec",
    "uninstall" or None (ended unseen). code: exit status. spare: empty slots behind the last of each section."""
    for said in marks:
        if said.kind == "phase" and phase is None:
            phase = next(m.text for m in reversed(marks) if m.kind == "phase")
            phase_since = next(m.at for m in reversed(marks) if m.kind == "phase")
        if said.kind == "note" and note is None:
            note = next(m.text for m in reversed(marks) if m.kind == "note")
        if said.kind == "step" and step is None:
            step = next(int(m.text) for m in reversed(marks) if m.kind == "step")
    chains: list[tuple[tuple[int, str], ...]] = []
    numbers: list[int] = []
    for sample in slow:
        names = tuple((level.version, level.path) for level in sample.groups)
        if not chains or (names and names != chains[-1]):
            chains.append(names)
        numbers.append(len(chains))
    processes = [
        _fields(
            ("chain", number),
            ("comm", comm),
            ("nspid", " ".join(str(n) for n in (nspid if nspid is not None else [pid]))),
            *(("cgroup", line) for line in cgroup),
            *(("uid_map", line) for line in uid_map),
            *(("group", f"{version_}:{path}") for version_, path in names),
        )
        for number, names in enumerate(chains or [()], 1)
    ]
    job = _fields(("exe", exe), *(("argv", word) for word in argv), ("host", host), ("container", container),
                  ("attempt", attempt))  # fmt: skip
    threads = _fields(*(("name", name) for name in thread_names))

    def texts(section: str, *values: tuple[float, bytes]) -> list[bytes]:
        return [_text_slot(SLOT[section], n, at, text) for n, (at, text) in enumerate(values, 1)]

    sections: dict[str, list[bytes]] = {
        "job": texts("job", (installed, job)),
        "process": texts("process", *((installed, text) for text in processes)),
        "threads": texts("threads", (installed, threads)),
        "phase": texts("phase", (phase_since or 0.0, phase.encode())) if phase is not None else [],
        "note": texts("note", (0.0, note.encode())) if note is not None else [],
        "step": [_step_slot(1, step)] if step is not None else [],
        "fast": [_fast_slot(n, sample) for n, sample in enumerate(fast, 1)],
        "slow": [_slow_slot(n, sample, epoch, numbers[n - 1]) for n, sample in enumerate(slow, 1)],
        "signals": [_signal_slot(n, seen) for n, seen in enumerate(signals, 1)],
        "marks": [_mark_slot(n, said) for n, said in enumerate(marks, 1)],
    }
    body = b""
    table = []
    for name, slots in sections.items():
        count = len(slots) + spare
        table.append((HEADER_BYTES + len(body), SLOT[name], count))
        body += b"".join(slots) + bytes(SLOT[name] * spare)
    head = _Bytes(HEADER_BYTES)
    head.text(0, b"FTFRING\0")
    head.u32(8, 1)
    head.u32(12, HEADER_BYTES)
    head.u64(16, HEADER_BYTES + len(body))
    head.text(24, version.encode()[:23])
    head.u32(48, pid)
    head.u32(52, ppid)
    head.u64(56, start_ticks)
    head.u32(64, fork_of or 0)
    head.u32(68, worker_of or 0)
    head.u32(72, uid)
    head.u32(76, code)
    head.u64(80, -1 if rank is None else rank)
    head.u64(88, -1 if local_rank is None else local_rank)
    head.u64(96, -1 if world_size is None else world_size)
    head.u64(104, pid_namespace or 0)
    head.u64(112, cgroup_namespace or 0)
    head.u64(120, UNLIMITED if cpu_limit_soft is None else cpu_limit_soft)
    head.u64(128, UNLIMITED if cpu_limit_hard is None else cpu_limit_hard)
    head.text(136, boot_id.encode()[:39])
    head.ns(176, installed)
    head.ns(184, epoch + installed)
    head.ns(192, installed)
    head.ns(200, installed)
    head.u32(208, round(period * 1e6))
    head.u32(212, HOW[end])
    last = max((sample.at for sample in (*fast, *slow)), default=installed)
    head.ns(216, (end_at if end_at is not None else last) if end else 0)
    head.u32(224, trouble)
    head.u32(228, len(table))
    for index, (offset, slot, count) in enumerate(table):
        head.u64(TABLE_AT + 16 * index, offset)
        head.u32(TABLE_AT + 16 * index + 8, slot)
        head.u32(TABLE_AT + 16 * index + 12, count)
    return bytes(head.data) + body

"""Recorder rings: whole, cut, damaged, foreign, and in the making."""

from __future__ import annotations

import random
import re
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conditions import ROOT
from ftforensics.model.crash import Sender
from ftforensics.model.reading import GroupReading
from ftforensics.model.ring import Ring
from ftforensics.wire.ring import NotARing, looks_like_a_ring, read_ring
from synth.ring import (
    BOOT_ID,
    EPOCH,
    SLOT,
    TABLE_AT,
    UNKNOWN,
    UNLIMITED,
    Child,
    fast,
    group,
    mark,
    ring_bytes,
    sig,
    slow,
)

GB = 1 << 30


def full() -> bytes:
    return ring_bytes(
        pid=4242,
        ppid=4200,
        rank=3,
        local_rank=1,
        world_size=16,
        fork_of=4100,
        worker_of=4000,
        nspid=[9001, 4242],
        container="ab" * 32,
        cgroup=["4:memory:/slurm/job_1", "0::/"],
        uid_map=["0 1000 1"],
        cpu_limit_soft=60,
        fast=[
            fast(99.7 + n / 10, rss_anon=n * GB, rss_file=1, rss_shmem=2, usage=7 * GB, available=3) for n in range(3)
        ],
        slow=[
            slow(
                99.0,
                groups=[
                    group("/slurm/job_1", usage=7 * GB, limit=8 * GB, oom_kill=2, failcnt=5, anon=1, inode=77),
                    group("/slurm", limit=UNLIMITED, usage=9 * GB),
                ],
                children=[Child(5, "pt_data_worker", 3 * GB), Child(6, "tail", None)],
                children_count=17,
                oom_score_adj=-998,
                cpu_seconds=12.5,
                oom_kill=41,
                mem_total=64 * GB,
                psi_some=12.34,
                psi_full=0,
                shm_used=5,
                gpu_used=6,
                ppid=1,
            )
        ],
        signals=[sig(99.5, 15, pid=17, uid=1000, fatal=True), sig(99.6, 24, code=128), sig(99.7, 99)],
        marks=[mark(90.0, "phase", "save \u00fc"), mark(91.0, "step", "-12"), mark(92.0, "note", "x")],
        thread_names=["python", "pt_autograd_0"],
        period=0.02,
        end="crash",
        end_at=100.5,
    )


def read(data: bytes) -> Ring:
    ring = read_ring(data, "rank3.ring")
    assert isinstance(ring, Ring), ring
    return ring


def test_a_whole_ring_says_everything() -> None:
    ring = read(full())
    me = ring.process
    assert (me.pid, me.ppid, me.rank, me.local_rank, me.world_size) == (4242, 4200, 3, 1, 16)
    assert (me.fork_of, me.worker_of, me.nspid, me.uid) == (4100, 4000, [9001, 4242], 1000)
    assert (me.host, me.comm, me.exe, me.argv) == ("gpu-07", "python", "/usr/bin/python3.11", ["python", "train.py"])
    assert (me.boot_id, me.start_ticks, me.container) == (BOOT_ID, 98765, "ab" * 32)
    assert (me.cgroup, me.uid_map) == (["4:memory:/slurm/job_1", "0::/"], ["0 1000 1"])
    assert (me.pid_namespace, me.cgroup_namespace) == (4026531836, 4026531835)
    assert (me.cpu_limit_soft, me.cpu_limit_hard) == (60, None)
    assert [(s.at, s.rss_anon) for s in ring.fast] == [(99.7, 0), (99.8, GB), (99.9, 2 * GB)]
    last = ring.fast[-1]
    assert (last.rss_file, last.rss_shmem, last.usage, last.available) == (1, 2, 7 * GB, 3)
    (sample,) = ring.slow
    assert (sample.oom_score_adj, sample.cpu_seconds, sample.ppid, sample.gpu_used) == (-998, 12.5, 1, 6)
    assert [(c.pid, c.comm, c.rss) for c in sample.children] == [(5, "pt_data_worker", 3 * GB), (6, "tail", None)]
    assert (sample.children_count, sample.gpu_total, sample.vm_size) == (17, None, None)
    reading = sample.reading
    assert reading is not None
    assert (reading.source, reading.locator) == ("ring", "rank3.ring slow[0]")
    assert (reading.moment.monotonic, reading.moment.realtime) == (99.0, EPOCH + 99)
    assert reading.moment.boot_id == BOOT_ID
    assert reading.groups == [
        GroupReading("/slurm/job_1", 1, usage=7 * GB, limit=8 * GB, oom_kill=2, failcnt=5, anon=1, inode=77),
        GroupReading("/slurm", 1, usage=9 * GB),
    ]
    assert (reading.oom_kill, reading.mem_total, reading.shm_used, reading.swap_free) == (41, 64 * GB, 5, None)
    assert (reading.psi_some, reading.psi_full) == (12.34, 0.0)
    assert [(s.name, s.fatal, s.sender, s.code) for s in ring.signals] == [
        ("SIGTERM", True, Sender(17, 1000), 0),
        ("SIGXCPU", False, None, 128),
        ("signal 99", False, None, 0),
    ]
    assert [(m.kind, m.text) for m in ring.marks] == [("phase", "save \u00fc"), ("step", "-12"), ("note", "x")]
    assert (ring.phase, ring.phase_since, ring.step, ring.note) == ("save \u00fc", 90.0, -12, "x")
    assert (ring.end.how, ring.end.at, ring.end.recorder) == ("crash", 100.5, None)
    assert (ring.period, ring.last, ring.installed, ring.version) == (0.02, 99.9, 10.0, "0.1.0")
    assert [clock.monotonic for clock in ring.clocks] == [10.0, 99.0]
    assert ring.thread_names == ["python", "pt_autograd_0"] and ring.gaps == []


def test_an_empty_ring_is_one() -> None:
    ring = read(ring_bytes())
    assert (ring.fast, ring.slow, ring.last, ring.phase, ring.step, ring.end.how) == ([], [], None, None, None, None)
    assert ring.gaps == []


def test_a_closed_phase_is_none() -> None:
    ring = read(ring_bytes(marks=[mark(1, "phase", "a"), mark(2, "phase", "")]))
    assert (ring.phase, ring.phase_since) == (None, None)


@pytest.mark.parametrize("end", ["exit", "crash", "exec", "uninstall", None])
def test_ends(end: str | None) -> None:
    assert read(ring_bytes(end=end)).end.how == end


def test_the_recorders_own_end() -> None:
    assert read(ring_bytes(trouble=1)).end.recorder == "a write to the ring's file failed"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (bytes(5000), "empty"),
        (b"{}", "does not begin"),
        (b"FTFRING\0" + bytes(100), "cut inside its header"),
        (full()[:231], "cut inside its header"),
        (full()[:8] + b"\x02" + full()[9:], "version 2"),
    ],
)
def test_what_is_none(data: bytes, why: str) -> None:
    reading = read_ring(data)
    assert isinstance(reading, NotARing)
    assert why in reading.message


def test_a_later_version_is_still_recognised() -> None:
    assert looks_like_a_ring((full()[:8] + b"\x02" + full()[9:])[:64])
    assert not looks_like_a_ring(b"FTF")


def section(data: bytes, name: str) -> tuple[int, int, int]:
    index = list(SLOT).index(name)
    offset, slot, count = struct.unpack_from("<QII", data, TABLE_AT + 16 * index)
    return offset, slot, count


def test_older_slots_that_were_written_over_are_in_order() -> None:
    """Samples 5 and 6 lie where 1 and 2 were."""
    data = bytearray(ring_bytes(fast=[fast(float(n)) for n in range(1, 5)], spare=0))
    offset, slot, _ = section(bytes(data), "fast")
    for index, number in ((0, 5), (1, 6)):
        at = offset + index * slot
        struct.pack_into("<Qq", data, at, number, number * 10**9)
        struct.pack_into("<Q", data, at + slot - 8, number)
    assert [sample.at for sample in read(bytes(data)).fast] == [3.0, 4.0, 5.0, 6.0]


def test_a_cut_inside_a_section_that_was_written_over() -> None:
    """Samples 5 and 6 lie in the slots of 1 and 2, and the file ends behind them."""
    data = bytearray(ring_bytes(fast=[fast(float(n)) for n in range(1, 5)], spare=0))
    offset, slot, _ = section(bytes(data), "fast")
    for index, number in ((0, 5), (1, 6)):
        at = offset + index * slot
        struct.pack_into("<Qq", data, at, number, number * 10**9)
        struct.pack_into("<Q", data, at + slot - 8, number)
    assert [sample.at for sample in read(bytes(data[: offset + 2 * slot])).fast] == [5.0, 6.0]


@pytest.mark.parametrize("broken", ["first number", "last number", "both"])
def test_a_slot_in_the_making_costs_only_itself(broken: str) -> None:
    data = bytearray(ring_bytes(fast=[fast(float(n)) for n in range(1, 5)]))
    offset, slot, _ = section(bytes(data), "fast")
    at = offset + 3 * slot
    if broken != "last number":
        struct.pack_into("<Q", data, at, 0)
    if broken != "first number":
        struct.pack_into("<Q", data, at + slot - 8, 0)
    ring = read(bytes(data))
    assert [sample.at for sample in ring.fast] == [1.0, 2.0, 3.0]
    assert ring.gaps == []


def test_two_damaged_slots_are_told() -> None:
    data = bytearray(ring_bytes(fast=[fast(float(n)) for n in range(1, 5)]))
    offset, slot, _ = section(bytes(data), "fast")
    for index in (0, 2):
        struct.pack_into("<Q", data, offset + index * slot, 1000)
    ring = read(bytes(data))
    assert [sample.at for sample in ring.fast] == [2.0, 4.0]
    assert [gap.why for gap in ring.gaps] == ["fast: 2 slots are damaged"]


def test_groups_that_the_process_has_left() -> None:
    """A process may be moved: each sample belongs to the chain that was told then, and only two are kept."""
    moved = [slow(1.0, groups=[group("/a", usage=1)]), slow(2.0, groups=[group("/b", usage=2), group("/", usage=3)])]
    ring = read(ring_bytes(slow=moved))
    paths = [[level.path for level in s.reading.groups] for s in ring.slow if s.reading]
    assert paths == [["/a"], ["/b", "/"]]
    data = bytearray(ring_bytes(slow=moved))
    offset = section(bytes(data), "process")[0]
    struct.pack_into("<Q", data, offset, 0)  # the older text is written over
    ring = read(bytes(data))
    assert [[level.path for level in s.reading.groups] for s in ring.slow if s.reading] == [[], ["/b", "/"]]
    assert [gap.why for gap in ring.gaps] == ["slow: names of control groups that the process has left are not kept"]


def test_a_cut_ring_says_what_is_missing() -> None:
    data = full()
    offset, slot, count = section(data, "slow")
    ring = read(data[: offset + slot // 2])
    assert len(ring.fast) == 3 and ring.slow == [] and ring.process.pid == 4242
    whys = [gap.why for gap in ring.gaps]
    assert whys[0] == f"cut: {offset + slot // 2} of {len(data)} bytes"
    assert f"slow: 0 of {count} slots are in the file" in whys


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(full())))
def test_cut_anywhere(length: int) -> None:
    reading = read_ring(full()[:length])
    if isinstance(reading, Ring) and length < len(full()):
        assert reading.gaps


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_damaged_anywhere(seed: int, count: int) -> None:
    chance = random.Random(seed)
    data = bytearray(full())
    for _ in range(count):
        data[chance.randrange(8, len(data)) if chance.random() < 0.5 else chance.randrange(8, 512)] = chance.randrange(
            256
        )
    reading = read_ring(bytes(data))
    if isinstance(reading, Ring):
        assert len(reading.fast) <= 5 and len(reading.gaps) < 40


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=4000))
def test_garbage_behind_the_magic(tail: bytes) -> None:
    read_ring(b"FTFRING\0\1\0\0\0" + tail)


def test_a_table_that_promises_too_much_costs_no_memory() -> None:
    data = bytearray(full())
    for index in range(10):
        struct.pack_into("<I", data, TABLE_AT + 16 * index + 12, 0xFFFFFFFF)
    struct.pack_into("<Q", data, TABLE_AT, UNKNOWN)
    ring = read(bytes(data))
    assert len(ring.gaps) >= 9


def test_the_layout_is_that_of_the_header() -> None:
    """The static asserts of csrc/ftf_ring.h hold the sizes that the builder states."""
    text = (ROOT / "csrc" / "ftf_ring.h").read_text()
    for name, struct_name in {
        "step": "step",
        "fast": "fast",
        "slow": "slow",
        "signals": "signal",
        "marks": "marked",
    }.items():
        found = re.search(rf"sizeof\(struct ftf_ring_{struct_name}\) == (\d+)", text)
        assert found is not None and int(found[1]) == SLOT[name]
    table = re.search(r"offsetof\(struct ftf_ring_header, table\) == (\d+)", text)
    assert table is not None and int(table[1]) == TABLE_AT

"""Processor, shared memory, free memory, limits and disk, before a run."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.model.moment import Moment
from ftforensics.model.preflight import Check, Status
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.parsers.machine_text import Limit, Processor
from ftforensics.preflight.machine import machine_checks
from ftforensics.sources.machine import Machine
from ftforensics.sources.places import Place

MIB, GIB = 1 << 20, 1 << 30
READING = Reading(Moment(), "now", mem_total=256 * GIB, mem_available=200 * GIB, shm_size=128 * GIB, shm_used=GIB)
FLAGS = ["sse2", "avx", "avx2", "fma"]
GOOD = Machine(
    name="x86_64",
    processor=Processor("A processor", FLAGS),
    memory=READING,
    limits=[Limit("nofile", 65536, 65536), Limit("nproc", None, None), Limit("stack", 8 * MIB, None)],
)


def one(name: str, machine: Machine, *places: Place) -> Check:
    (check,) = [check for check in machine_checks(machine, places) if check.name == name]
    return check


def memory(**fields: int | list[GroupReading] | None) -> Machine:
    return msgspec.structs.replace(GOOD, memory=msgspec.structs.replace(READING, **fields))


def test_a_good_machine_is_ok() -> None:
    assert {check.status for check in machine_checks(GOOD, [])} == {Status.OK}


def test_a_processor_without_avx2_warns() -> None:
    check = one("cpu-features", msgspec.structs.replace(GOOD, processor=Processor("Old", ["sse2", "avx"])))
    assert (check.status, check.cause) == (Status.WARN, "cpu-feature-missing")
    assert "avx2" in check.said


def test_another_architecture_has_no_avx2_to_miss() -> None:
    arm = msgspec.structs.replace(GOOD, name="aarch64", processor=Processor(None, ["fp", "asimd"]))
    assert one("cpu-features", arm).status is Status.OK


@pytest.mark.parametrize(
    ("size", "used", "status"),
    [
        (64 * MIB, 0, Status.FAIL),
        (512 * MIB, 0, Status.WARN),
        (8 * GIB, 8 * GIB - 10 * MIB, Status.FAIL),
        (8 * GIB, 0, Status.OK),
    ],
    ids=["docker's default", "small", "full of left-overs", "enough"],
)
def test_shared_memory(size: int, used: int, status: Status) -> None:
    check = one("shared-memory", memory(shm_size=size, shm_used=used))
    assert check.status is status
    assert status is Status.OK or (check.cause == "shm-exhausted" and check.remedies)


def test_shared_memory_that_is_not_there_fails_and_one_that_cannot_be_read_is_unknown() -> None:
    unread = memory(shm_size=None, shm_used=None)
    assert one("shared-memory", unread).status is Status.UNKNOWN
    assert one("shared-memory", msgspec.structs.replace(unread, shared_memory=False)).status is Status.FAIL


@pytest.mark.parametrize(("percent", "status"), [(90, Status.OK), (20, Status.OK), (19, Status.FAIL)])
def test_free_memory(percent: int, status: Status) -> None:
    assert one("free-memory", memory(mem_available=256 * GIB * percent // 100 + MIB)).status is status


def group(**fields: int) -> GroupReading:
    return msgspec.structs.replace(GroupReading("/job", 2, usage=60 * GIB, limit=64 * GIB), **fields)


def test_the_limit_of_the_group_counts_too() -> None:
    check = one("free-memory-of-group", memory(groups=[group()]))
    assert (check.status, check.cause) == (Status.FAIL, "cgroup-oom")


def test_page_cache_of_a_group_is_free_and_shared_files_are_not() -> None:
    assert one("free-memory-of-group", memory(groups=[group(file=50 * GIB)])).status is Status.OK
    held = group(file=50 * GIB, shmem=50 * GIB)
    assert one("free-memory-of-group", memory(groups=[held])).status is Status.FAIL


def test_the_tightest_group_of_the_chain_decides() -> None:
    wide = msgspec.structs.replace(group(), path="/above", usage=GIB, limit=128 * GIB)
    check = one("free-memory-of-group", memory(groups=[group(), wide]))
    assert "/job" in check.said


def test_a_group_without_a_limit_says_nothing() -> None:
    free = GroupReading("/job", 2, usage=60 * GIB)
    assert all(check.name != "free-memory-of-group" for check in machine_checks(memory(groups=[free])))


def limited(*limits: Limit, infiniband: tuple[str, ...] = ()) -> Machine:
    return msgspec.structs.replace(GOOD, limits=list(limits), infiniband=list(infiniband))


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("open-files", Limit("nofile", 1024, 524288)),
        ("processes", Limit("nproc", 512, 512)),
        ("stack-size", Limit("stack", MIB, None)),
    ],
)
def test_a_low_limit_warns(name: str, limit: Limit) -> None:
    check = one(name, limited(limit))
    assert check.status is Status.WARN and check.remedies[0].command


def test_open_files_are_raised_no_higher_than_allowed() -> None:
    check = one("open-files", limited(Limit("nofile", 1024, 2048)))
    assert check.remedies[0].command == "ulimit -n 2048"


def test_locked_memory_matters_with_infiniband_only() -> None:
    low = Limit("memlock", 8 * MIB, 8 * MIB)
    assert one("limits", limited(low)).status is Status.OK
    assert one("locked-memory", limited(low, infiniband=("mlx5_0",))).status is Status.WARN


def place(free: int, size: int, **fields: int) -> Place:
    made = Place("/out", kind="folder", writable=True, existing="/out", size=size, free=free)
    return msgspec.structs.replace(made, **fields)


@pytest.mark.parametrize(
    ("free", "size", "status"),
    [
        (500 * GIB, 1000 * GIB, Status.OK),
        (10 * GIB, 1000 * GIB, Status.WARN),
        (100 * GIB, 10_000 * GIB, Status.OK),
        (100 * MIB, 1000 * GIB, Status.FAIL),
    ],
    ids=["half", "nearly full", "little of much", "none"],
)
def test_room_on_disk(free: int, size: int, status: Status) -> None:
    assert one("disk-room", GOOD, place(free, size)).status is status


def test_no_inodes_is_no_room() -> None:
    assert one("disk-room", GOOD, place(500 * GIB, 1000 * GIB, files=1000, files_free=0)).status is Status.FAIL


def test_two_places_of_one_file_system_are_one_line() -> None:
    two = [place(500 * GIB, 1000 * GIB), msgspec.structs.replace(place(500 * GIB, 1000 * GIB), existing="/out/more")]
    assert one("disk-room", GOOD, *two).said.endswith("at /out")

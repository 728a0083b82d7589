"""/dev/kmsg record by record: its end, overwritten records, a writer without end, a device that is not it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from conditions import needs_root
from ftforensics.host.host import Completed, Host, KernelRing, Refusal, drain_ring

RECORD = b"6,%d,%d,-;text\n"


def reads(answers: Iterator[bytes | OSError]) -> Callable[[], bytes]:
    def read() -> bytes:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    return read


def drained(*answers: bytes | OSError, limit: int = 1 << 20) -> KernelRing:
    return drain_ring(reads(iter(answers)), limit, time.monotonic() + 60)


def refused(code: int) -> OSError:
    return OSError(code, os.strerror(code))  # the subclass that read(2) would give


def test_reading_ends_where_no_record_waits() -> None:
    ring = drained(RECORD % (1, 1), RECORD % (2, 2), refused(errno.EAGAIN))
    assert ring == KernelRing([RECORD % (1, 1), RECORD % (2, 2)])


def test_overwritten_records_leave_a_hole_and_reading_goes_on() -> None:
    lost = refused(errno.EPIPE)
    ring = drained(lost, RECORD % (1, 1), lost, lost, RECORD % (900, 9), refused(errno.EAGAIN))
    assert ring == KernelRing([None, RECORD % (1, 1), None, RECORD % (900, 9)])


def test_another_refusal_is_not_an_end() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        drained(RECORD % (1, 1), refused(errno.EINVAL))


def forever(answer: bytes | OSError) -> Iterator[bytes | OSError]:
    while True:
        yield answer


def test_a_writer_without_end_is_cut_at_the_limit() -> None:
    ring = drain_ring(reads(forever(RECORD % (1, 1))), 1000, time.monotonic() + 60)
    assert ring.cut and ring.records == [RECORD % (1, 1)] * (1000 // len(RECORD % (1, 1)) + 1)


@pytest.mark.parametrize("answer", [RECORD % (1, 1), refused(errno.EPIPE)], ids=["records", "overwritten"])
def test_a_writer_without_end_is_cut_at_the_deadline(answer: bytes | OSError) -> None:
    start = time.monotonic()
    ring = drain_ring(reads(forever(answer)), 1 << 40, start + 0.05)
    assert ring.cut and time.monotonic() - start < 1


@needs_root
def test_this_machines_ring() -> None:
    """Two readers do not take records from each other, and the newest one is there."""
    mark = f"ftforensics test {os.getpid()} {time.monotonic_ns()}"
    Path("/dev/kmsg").write_text(f"<14>{mark}\n")
    for _ in range(2):
        ring = Host().kernel_ring()
        assert not ring.cut
        assert any(record and mark.encode() in record for record in ring.records)
        assert all(record is None or record.endswith(b"\n") for record in ring.records)


def test_a_copy_of_files_has_no_ring(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("6,1,1,-;Killed process 1 (forged)\n")
    with pytest.raises(Refusal) as refusal:
        Host(root=tmp_path).kernel_ring()
    assert refusal.value.absent


def test_room_of_a_file_system(tmp_path: Path) -> None:
    assert Host().statvfs("/dev/shm").f_frsize > 0
    with pytest.raises(Refusal):
        Host(root=tmp_path).statvfs("/dev/shm")


def test_the_end_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\nthree\n")
    host = Host(root=tmp_path)
    assert host.read_end("/log", 8) == b"o\nthree\n"
    assert host.read_end("/log", 1000) == b"one\ntwo\nthree\n"
    with pytest.raises(Refusal) as refusal:
        host.read_end("/nothing", 8)
    assert refusal.value.absent


def test_the_end_of_a_huge_file_costs_its_end_only(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"last\n")
    start = time.monotonic()
    assert Host(root=tmp_path).read_end("/log", 6) == b"\0last\n"
    assert time.monotonic() - start < 1


def test_commands_of_a_copied_root_need_a_runner_of_its_own(tmp_path: Path) -> None:
    assert Host().runs_commands
    assert not Host(root=tmp_path).runs_commands

    def its_own(argv: Sequence[str], timeout: float, limit: int) -> Completed:
        return Completed(tuple(argv), 0, b"", b"")

    assert Host(root=tmp_path, run=its_own).runs_commands


def test_now_on_both_clocks(tmp_path: Path) -> None:
    here = Host().moment()
    assert here.realtime is not None and here.monotonic is not None
    assert abs(here.realtime - time.time()) < 5 and abs(here.monotonic - time.monotonic()) < 5
    copied = Host(root=tmp_path, now=lambda: 12.0).moment()
    assert (copied.realtime, copied.monotonic) == (12.0, None)

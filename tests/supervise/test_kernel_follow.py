"""The kernel log as it is written: the real /dev/kmsg, with records that the kernel or we put there."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from conditions import CGROUP_V1_MEMORY, needs_cgroup_v1_memory, needs_dmesg_restrict, needs_kmsg
from ftforensics.parsers import kernel_log
from ftforensics.parsers.kernel_log import read_kernel_log
from ftforensics.parsers.kmsg_interest import Sieve
from ftforensics.supervise import kernel_follow
from ftforensics.supervise.kernel_follow import KernelFollow, follow_kernel


class Gaps(list[tuple[str, "str | None"]]):
    def __call__(self, why: str, grant: str | None) -> None:
        self.append((why, grant))


@pytest.fixture
def gaps() -> Gaps:
    return Gaps()


@pytest.fixture
def follow(gaps: Gaps) -> KernelFollow:
    opened = follow_kernel(gaps)
    assert opened is not None, gaps
    return opened


def say(text: str) -> None:
    """As any program with the right may: the kernel gives such a record the facility "user"."""
    with open("/dev/kmsg", "w") as log:
        log.write(text + "\n")  # without it the record stays open for more, and readable only with the next one


def until(follow: KernelFollow, text: str, limit: float = 20) -> list[str]:
    """Everything up to the record that holds `text`."""
    records: list[str] = []
    deadline = time.monotonic() + limit
    while not any(text in record for record in records):
        left = deadline - time.monotonic()
        assert left > 0, records
        select.select([follow.fd], [], [], left)
        records += follow.read()
    return records


@needs_kmsg
def test_only_what_comes_after_the_start_is_read(gaps: Gaps) -> None:
    before, after = f"before {uuid.uuid4()}", f"after {uuid.uuid4()}"
    say(before)
    follow = follow_kernel(gaps)
    assert follow is not None
    say(after)
    records = until(follow, after)
    assert not [record for record in records if before in record]
    assert next(record for record in records if after in record).split(";")[0].count(",") >= 3
    follow.close()
    assert gaps == []


@needs_kmsg
def test_record_numbers_are_continuous_as_the_parser_wants_them(follow: KernelFollow) -> None:
    marks = [f"mark {n} {uuid.uuid4()}" for n in range(5)]  # the kernel takes 10 in 5 s (printk_devkmsg)
    for mark in marks:
        say(mark)
    log = read_kernel_log("\n".join(until(follow, marks[-1])).encode(), source="kmsg")
    assert log.gap_free
    assert log.lines >= 5
    follow.close()


@needs_kmsg
@needs_cgroup_v1_memory
def test_a_whole_report_of_the_oom_killer_comes_through(follow: KernelFollow) -> None:
    group = CGROUP_V1_MEMORY / f"ftf-follow-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(32 << 20))
        if (group / "memory.memsw.limit_in_bytes").exists():
            (group / "memory.memsw.limit_in_bytes").write_text(str(32 << 20))
        code = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0'); held = [bytearray(1 << 20) for _ in range(512)]"
        done = subprocess.Popen([sys.executable, "-c", code])
        assert done.wait() == -signal.SIGKILL
        # The block is complete when the process can be seen to be dead: no waiting here.
        text = "\n".join(follow.read()).encode()
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.02)  # the group empties a moment after the wait: nothing to wait for tells it
    kills = [event for event in read_kernel_log(text, source="kmsg").events if getattr(event, "pid", None) == done.pid]
    assert kills, text[-3000:]
    follow.close()


def test_records_that_the_ring_lost_are_marked(gaps: Gaps, monkeypatch: pytest.MonkeyPatch) -> None:
    """read(2) on /dev/kmsg says EPIPE once when the ring has turned over. Doing that to the real ring would take the
    kernel's lines from everybody else on this machine, so the error is put in the place of one record."""
    writing, follow = pipe_follow(gaps)
    for n in (1, 2, 5):
        os.write(writing, record(n, "usb"))
    answers = [os.read(follow.fd, 9000), os.read(follow.fd, 9000), OSError(errno.EPIPE, "Broken pipe")]
    really = os.read

    def read(fd: int, size: int) -> bytes:
        answer = answers.pop(0) if fd == follow.fd and answers else really(fd, size)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(kernel_follow.os, "read", read)
    records = follow.read()
    assert records == ["6,1,100,-;usb", "6,2,200,-;usb", kernel_follow.OVERRUN, "6,5,500,-;usb"]
    assert not read_kernel_log("\n".join(records).encode(), source="kmsg").gap_free
    assert gaps == []
    os.close(writing)
    follow.close()


def pipe_follow(gaps: Gaps) -> tuple[int, KernelFollow]:
    """Like /dev/kmsg a packet pipe gives one record a read(2)."""
    reading, writing = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    return writing, KernelFollow(reading, gaps)


def record(number: int, text: str) -> bytes:
    return f"6,{number},{number * 100},-;{text}\n SUBSYSTEM=x\n".encode()


NOISE = "[UFW BLOCK] IN=eth0 " + "." * 2000


def test_memory_is_bounded_and_noise_goes_first(gaps: Gaps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_follow, "_FOR_ALL", 20_000)
    monkeypatch.setattr(kernel_follow, "_MOST", 40_000)
    writing, follow = pipe_follow(gaps)
    kept: list[str] = []
    for n in range(12):
        os.write(writing, record(n, NOISE))
        kept += follow.read()
    noise = len(kept)
    assert noise < 12
    fault = "python[7]: segfault at 0 ip 1 sp 2 error 4 " + "." * 1000
    for n in range(12, 60):
        os.write(writing, record(n, fault))
        kept += follow.read()
    assert kept[noise].startswith("6,12,")
    assert kept[-1] == kernel_follow.OVERRUN
    assert sum(map(len, kept)) < 45_000
    assert [grant for _, grant in gaps] == [None]
    assert not read_kernel_log("\n".join(kept).encode(), source="kmsg").gap_free
    os.close(writing)
    follow.close()


def test_the_dictionary_behind_a_record_is_left_out(gaps: Gaps) -> None:
    writing, follow = pipe_follow(gaps)
    os.write(writing, record(1, "usb"))
    assert follow.read() == ["6,1,100,-;usb"]
    os.close(writing)
    follow.close()


def test_the_overrun_mark_is_the_parsers() -> None:
    assert kernel_follow.OVERRUN == kernel_log.OVERRUN


@pytest.mark.parametrize("anchor", kernel_log.ANCHORS, ids=repr)
def test_the_sieve_passes_what_the_parser_looks_for(anchor: bytes) -> None:
    if anchor in (b"Linux version ", kernel_log.OVERRUN.encode()):
        return  # another boot's, or no record of the kernel
    assert Sieve().wants(b"6,1,2,-;some " + anchor + b" thing")


def test_the_sieve_follows_a_report_to_its_end() -> None:
    report = Path(__file__).with_name("oom_report.kmsg").read_bytes().splitlines()
    sieve = Sieve()
    assert [line for line in report if not sieve.wants(line)] == []
    assert not Sieve().wants(b"6,1,2,-;veth1: renamed from eth0")


def test_without_the_device_there_is_a_gap_with_its_remedy(gaps: Gaps, tmp_path: Path) -> None:
    assert follow_kernel(gaps, str(tmp_path / "kmsg")) is None
    ((why, grant),) = gaps
    assert "not followed" in why
    assert grant is not None and "--device /dev/kmsg" in grant


@needs_kmsg
@needs_dmesg_restrict
def test_another_user_is_told_what_would_let_him(tmp_path: Path) -> None:
    code = "import os; from ftforensics.supervise.kernel_follow import follow_kernel; os.setuid(65534)\n"
    code += "assert follow_kernel(lambda why, grant: print(grant)) is None"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", "sudo sysctl kernel.dmesg_restrict=0\n")


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, ftforensics.supervise.senders, ftforensics.supervise.kernel_follow;"
        " print('msgspec' in sys.modules or 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr

"""The ladder of kernel logs: what each rung gives or refuses, how far it reaches back, real kills in the real log."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conditions import needs_cgroup_v1_memory, needs_root
from ftforensics.host.host import Completed, Host, KernelRing, Refusal
from ftforensics.model.basics import Address, Gap
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.crash import CrashRecord, Job, Module, Time
from ftforensics.model.kernel import KernelLog, Lost, OomKill
from ftforensics.model.moment import Moment
from ftforensics.model.ring import ClockPair
from ftforensics.model.run import Died, Ended, RunEvidence, Started
from ftforensics.sources.identity_here import read_identity
from ftforensics.sources.kernel_log import DMESG_RESTRICT, read_kernel_logs
from ftforensics.sources.live import with_live

if TYPE_CHECKING:
    from conftest import AsNobody, Commands, Eater, Files

BOOT = "0231076c-b8c6-43e7-81dc-7609325ca25a"
OTHER_BOOT = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
NOW = 1795960800.0  # the machine's, see conftest
UPTIME = 5000.0
BOOTED = NOW - UPTIME
KILLED = "Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB"


class Live(Host):
    """gpu-07 as if we ran on it: it has a clock since boot and, when given, a ring."""

    def __init__(self, files: Files, commands: Commands, ring: KernelRing | Refusal) -> None:
        super().__init__(files.root, commands, now=lambda: NOW)
        self._ring = ring
        self.ring_reads = 0

    def moment(self) -> Moment:
        return Moment(realtime=NOW, monotonic=UPTIME)

    def kernel_ring(self, timeout: float = 2.0, limit: int = 0) -> KernelRing:
        del timeout, limit
        self.ring_reads += 1
        if isinstance(self._ring, Refusal):
            raise self._ring
        return self._ring


REFUSED = Refusal("/dev/kmsg", "Operation not permitted", 1)
ABSENT = Refusal("/dev/kmsg", "No such file or directory", 2)


def ring(*lines: tuple[int, float, str], cut: bool = False) -> KernelRing:
    """(number, seconds since boot, text) each."""
    return KernelRing([f"6,{number},{int(at * 1e6)},-;{text}\n".encode() for number, at, text in lines], cut)


WHOLE = ring((0, 0.0, "Linux version 6.1.0"), (1, 10.0, "up"), (2, 4990.0, KILLED))


def journal_line(at: float, text: str, boot: str = BOOT) -> bytes:
    entry = {
        "MESSAGE": text,
        "PRIORITY": "6",
        "SYSLOG_FACILITY": "0",
        "SYSLOG_IDENTIFIER": "kernel",
        "_TRANSPORT": "kernel",
        "_HOSTNAME": "gpu-07",
        "_BOOT_ID": boot.replace("-", ""),
        "__REALTIME_TIMESTAMP": str(int(at * 1e6)),
        "_SOURCE_MONOTONIC_TIMESTAMP": str(int((at - BOOTED) * 1e6)),
    }
    return json.dumps(entry).encode() + b"\n"


def journal(*lines: tuple[float, str], boot: str = BOOT, status: int = 0) -> Completed:
    return Completed(("journalctl",), status, b"".join(journal_line(at, text, boot) for at, text in lines), b"")


def answering(commands: Commands, before: Completed, since: Completed) -> None:
    def answer(argv: Sequence[str]) -> Completed:
        return before if "--until" in argv else since

    commands.answers["journalctl"] = answer


def whys(gaps: list[Gap]) -> str:
    assert all(gap.source == "kernel log" for gap in gaps)
    return "\n".join(gap.why for gap in gaps)


def kills(logs: list[KernelLog]) -> list[int]:
    return [event.pid for log in logs for event in log.events if isinstance(event, OomKill)]


def test_the_ring_is_enough_when_it_reaches_back(files: Files, commands: Commands) -> None:
    for since in (None, BOOTED + 100):
        logs, gaps = read_kernel_logs(Live(files, commands, WHOLE), boot_id=BOOT, since=since)
        (log,) = logs
        assert gaps == []
        assert (log.source, log.path, log.live, log.boot_id, log.host) == ("kmsg", "/dev/kmsg", True, BOOT, "gpu-07")
        assert log.gap_free and kills(logs) == [4242]
    assert commands.asked == []


def test_nothing_is_missing_before_the_boot(files: Files, commands: Commands) -> None:
    """A job that was started seconds after the boot: ten seconds before it there was no log."""
    logs, gaps = read_kernel_logs(Live(files, commands, WHOLE), boot_id=BOOT, since=BOOTED - 9)
    assert len(logs) == 1 and gaps == [] and commands.asked == []


def test_without_a_boot_the_running_one_is_meant(files: Files, commands: Commands) -> None:
    logs, _ = read_kernel_logs(Live(files, commands, WHOLE), boot_id=None, since=None)
    assert logs[0].boot_id == BOOT


def test_a_ring_that_begins_too_late_is_kept_and_the_journal_added(files: Files, commands: Commands) -> None:
    late = ring((900, 4000.0, "late"), (901, 4990.0, KILLED))
    since = BOOTED + 3000
    answering(commands, journal((since - 9, "before")), journal((since + 1, KILLED), (NOW - 1, "later")))
    host = Live(files, commands, late)
    logs, gaps = read_kernel_logs(host, boot_id=BOOT, since=since)
    assert [log.source for log in logs] == ["kmsg", "journal"]
    assert "/dev/kmsg begins 1000 s after" in whys(gaps) and "log_buf_len" in (gaps[0].grant or "")
    assert len(gaps) == 1
    assert [argv[0] for argv in commands.asked] == ["journalctl"] * 2  # dmesg would show the same ring again
    assert all(BOOT.replace("-", "") in argv and "-k" in argv for argv in commands.asked)
    assert all(timeout <= 10 and limit <= 64 << 20 for timeout, limit in commands.bounds)
    assert kills(logs) == [4242, 4242] and logs[1].gap_free is False


def test_the_clocks_part_so_that_a_close_call_is_no_cover(files: Files, commands: Commands) -> None:
    """After 1,000,000 s the printk clock may be 100 s off."""
    month = Live(files, commands, ring((900, 0.0, "x"), (901, 1.0, "y")))
    month.moment = lambda: Moment(realtime=NOW, monotonic=1_000_000.0)  # type: ignore[method-assign]
    booted = NOW - 1_000_000
    _, gaps = read_kernel_logs(month, boot_id=BOOT, since=booted + 50)
    assert "/dev/kmsg begins" in whys(gaps)
    assert read_kernel_logs(month, boot_id=BOOT, since=booted + 150)[1] == []


def test_an_empty_ring_excludes_nothing(files: Files, commands: Commands) -> None:
    logs, gaps = read_kernel_logs(Live(files, commands, ring()), boot_id=BOOT, since=None)
    assert logs == [] and "/dev/kmsg holds no lines" in whys(gaps)


def test_holes_and_endless_writers_are_said(files: Files, commands: Commands) -> None:
    holes = KernelRing([*WHOLE.records[:2], None, *WHOLE.records[2:]], cut=True)
    (log,), gaps = read_kernel_logs(Live(files, commands, holes), boot_id=BOOT, since=None)
    assert not log.gap_free
    assert "overwritten" in whys(gaps) and "newest records are missing" in whys(gaps)
    assert [event.kind for event in log.events if isinstance(event, Lost)] == ["overrun"]
    assert set(gaps) <= set(log.gaps)


def test_dmesg_where_the_device_is_missing(files: Files, commands: Commands) -> None:
    commands.says("dmesg", b"<5>[    0.000000] Linux version 6.1.0\n<3>[ 4990.000000] " + KILLED.encode() + b"\n")
    (log,), gaps = read_kernel_logs(Live(files, commands, ABSENT), boot_id=BOOT, since=None)
    assert (log.source, log.path, log.live, log.gap_free) == ("dmesg", "dmesg", True, False)
    assert kills([log]) == [4242]
    assert whys(gaps) == "/dev/kmsg: No such file or directory"
    assert commands.asked == [("dmesg", "-r")]


@pytest.mark.parametrize(
    ("setup", "grant"),
    [
        ((DMESG_RESTRICT, "1\n"), "sysctl kernel.dmesg_restrict=0"),
        ((DMESG_RESTRICT, "0\n"), "as root"),
        (("/proc/self/cgroup", f"0::/docker/{'ab' * 32}\n"), "--cap-add SYSLOG"),
    ],
)
def test_each_refusal_says_how_to_grant_it(
    files: Files, commands: Commands, setup: tuple[str, str], grant: str
) -> None:
    files.write(*setup)
    commands.says("dmesg", stderr=b"dmesg: read kernel buffer failed: Operation not permitted\n", status=1)
    commands.says("journalctl", stderr=b"No journal files were opened due to insufficient permissions.\n", status=1)
    logs, gaps = read_kernel_logs(Live(files, commands, REFUSED), boot_id=BOOT, since=NOW - 60)
    assert logs == []
    kmsg, dmesg, journalctl, log_files = gaps
    assert kmsg.why == "/dev/kmsg: Operation not permitted" and grant in (kmsg.grant or "")
    assert dmesg.why == "dmesg: dmesg: read kernel buffer failed: Operation not permitted" and grant in (
        dmesg.grant or ""
    )
    assert "insufficient permissions" in journalctl.why and "systemd-journal" in (journalctl.grant or "")
    assert "there is none of /var/log/kern.log" in log_files.why
    assert "journalctl -k -o json --since" in (log_files.grant or "")


@pytest.mark.parametrize("realtime", [-1e17, math.inf, -math.inf, math.nan])
def test_a_run_whose_time_is_in_no_calendar_is_asked_about_all_the_same(
    files: Files, commands: Commands, realtime: float
) -> None:
    files.write("/proc/sys/kernel/random/boot_id", f"{BOOT}\n")
    commands.says("journalctl", stderr=b"No journal files were found.\n", status=1)
    clocks = ClockPair(realtime=realtime, monotonic=1.0, boottime=1.0)
    run = RunEvidence(
        started=Started(schema="ftforensics.evidence/1", version="0", clocks=clocks, boot_id=BOOT),
        died=[Died(at=1.0, pid=7, signal=9)],
        ended=Ended(at=1.0, clocks=clocks, signal=9),
    )
    case = with_live(Case(records=[], runs=[run]), Live(files, commands, REFUSED))
    assert "/dev/kmsg: Operation not permitted" in [gap.why for gap in case.gaps]


@pytest.mark.parametrize(("library", "asked"), [("libcuda.so.550.54.14", 1), ("libcudart.so.12", 0)])
def test_the_kernels_log_is_asked_about_a_crashed_process_that_used_a_gpu(
    files: Files, commands: Commands, library: str, asked: int
) -> None:
    """Its end is in its own record; what the GPU met before is only in the driver's lines."""
    record = CrashRecord(
        schema="ftforensics.crash/1",
        time=Time(realtime=NOW - 30, boot_id=BOOT),
        job=Job(host="gpu-07"),
        modules=[Module(f"/usr/lib/{library}", Address(0x7F00))],
    )
    host = Live(files, commands, ring((1, UPTIME - 32, "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, GPU has fallen")))
    case = with_live(Case(records=[CaseRecord(record)]), host)
    assert host.ring_reads == asked
    assert len(case.kernel_logs) == asked


def test_in_a_container_the_missing_device_must_be_given_too(files: Files, commands: Commands) -> None:
    files.write("/proc/self/cgroup", f"0::/docker/{'ab' * 32}\n")
    _, gaps = read_kernel_logs(Live(files, commands, ABSENT), boot_id=BOOT, since=NOW - 60)
    assert "--cap-add SYSLOG --device /dev/kmsg" in (gaps[0].grant or "")
    assert "on the node" in (gaps[0].grant or "")


def test_a_journal_that_shows_nothing_is_a_gap(files: Files, commands: Commands) -> None:
    """Without the right to read it journalctl ends with 0 and shows an empty journal."""
    commands.says(
        "journalctl", stderr=b"Hint: You are currently not seeing messages from other users and the system.\n"
    )
    logs, gaps = read_kernel_logs(Live(files, commands, REFUSED), boot_id=BOOT, since=NOW - 60)
    assert logs == [] and "shows no kernel line" in whys(gaps)


def test_a_journal_that_was_rotated_away_before_is_partial(files: Files, commands: Commands) -> None:
    answering(commands, journal(), journal((NOW - 30, KILLED)))
    logs, gaps = read_kernel_logs(Live(files, commands, REFUSED), boot_id=BOOT, since=NOW - 60)
    assert kills(logs) == [4242]
    assert "journalctl -k begins 30 s after" in whys(gaps)


def test_a_journal_that_ended_before_is_no_cover(files: Files, commands: Commands) -> None:
    answering(commands, journal((NOW - 90, "quiet")), journal())
    logs, gaps = read_kernel_logs(Live(files, commands, REFUSED), boot_id=BOOT, since=NOW - 60)
    assert [log.source for log in logs] == ["journal"]
    assert "no line since" in whys(gaps)


def test_an_earlier_boot_is_in_the_journal_only(files: Files, commands: Commands) -> None:
    """A machine that ran out of memory and was started again; the ring is another boot's and not even opened."""
    files.write("/var/log/kern.log", "Nov 29 13:59:00 gpu-07 kernel: [ 4940.0] x\n")
    answering(commands, journal((BOOTED - 900, "a"), boot=OTHER_BOOT), journal((BOOTED - 99, KILLED), boot=OTHER_BOOT))
    host = Live(files, commands, WHOLE)
    logs, gaps = read_kernel_logs(host, boot_id=OTHER_BOOT, since=BOOTED - 500)
    assert host.ring_reads == 0
    (log,) = logs
    assert (log.source, log.boot_id, log.live) == ("journal", OTHER_BOOT, False)
    assert kills(logs) == [4242]
    assert all(OTHER_BOOT.replace("-", "") in argv for argv in commands.asked)
    assert "of the running boot" in whys(gaps)


def test_an_earlier_boot_without_a_journal_is_all_gaps(files: Files, commands: Commands) -> None:
    files.write("/var/log/kern.log", "Nov 29 13:59:00 gpu-07 kernel: [ 4940.0] x\n")
    commands.says("dmesg", b"<3>[ 1.0] " + KILLED.encode())
    logs, gaps = read_kernel_logs(Live(files, commands, WHOLE), boot_id=OTHER_BOOT, since=None)
    assert logs == []
    assert "No such file" in whys(gaps) and "running boot only" in whys(gaps)


def syslog_time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000+00:00", time.gmtime(at))


def test_log_files_and_the_one_rotated_last(files: Files, commands: Commands) -> None:
    since = NOW - 3600
    files.write("/var/log/kern.log", f"{syslog_time(NOW - 60)} gpu-07 kernel: [ 4940.000000] {KILLED}\n")
    older = files.write("/var/log/kern.log.1", f"{syslog_time(since - 60)} gpu-07 kernel: [ 1340.0] old\n" * 2)
    files.write("/var/log/kern.log.2.gz", b"\x1f\x8b")
    os.utime(older, (NOW, NOW))
    logs, gaps = read_kernel_logs(Live(files, commands, REFUSED), boot_id=BOOT, since=since)
    assert [(log.source, log.path) for log in logs] == [("file", "/var/log/kern.log"), ("file", "/var/log/kern.log.1")]
    assert all(log.boot_id is None for log in logs)  # a file may span boots
    assert kills(logs) == [4242]
    assert "/var/log/kern.log begins 3540 s after" in whys(gaps)


def test_a_file_that_covers_ends_the_search(files: Files, commands: Commands) -> None:
    lines = f"{syslog_time(NOW - 7200)} gpu-07 kernel: old\n{syslog_time(NOW - 60)} gpu-07 kernel: [ 4940.0] {KILLED}\n"
    files.write("/var/log/messages", lines)
    files.write("/var/log/syslog", lines)
    logs, _ = read_kernel_logs(Live(files, commands, REFUSED), boot_id=BOOT, since=NOW - 3600)
    assert [log.path for log in logs] == ["/var/log/messages"]


def test_times_of_a_file_without_a_zone_are_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    from ftforensics.sources.kernel_log import _in_local_time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        summer, winter = Moment(1784973600.0, accuracy=14 * 3600.0), Moment(1795960800.0, accuracy=14 * 3600.0)
        twice = Moment(1792895400.0, accuracy=14 * 3600.0)  # 2026-10-25 02:30, which comes twice
        log = _in_local_time(KernelLog(source="file", first=summer, last=winter))
        assert log.first == Moment(1784973600.0 - 7200, accuracy=1.0)
        assert log.last == Moment(1795960800.0 - 3600, accuracy=1.0)
        assert _in_local_time(KernelLog(source="file", first=twice)).first == Moment(
            twice.realtime - 7200, accuracy=3601.0
        )
        stated = Moment(5.0, accuracy=1.0)
        assert _in_local_time(KernelLog(source="file", first=stated)).first == stated
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_end_of_a_huge_file_is_read(files: Files, commands: Commands) -> None:
    place = files.write("/var/log/kern.log", "")
    with open(place, "wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(f"\n{syslog_time(NOW - 60)} gpu-07 kernel: [ 4940.0] {KILLED}\n".encode())
    start = time.monotonic()
    logs, _ = read_kernel_logs(Live(files, commands, REFUSED), boot_id=BOOT, since=NOW - 3600)
    assert kills(logs) == [4242]
    assert time.monotonic() - start < 20


def test_garbage_everywhere(files: Files, commands: Commands) -> None:
    garbage = os.urandom(1 << 16) + b"\n" + bytes(range(256)) * 40
    commands.says("dmesg", garbage)
    commands.says("journalctl", garbage)
    for path in ("/var/log/kern.log", "/var/log/messages", "/proc/self/cgroup", "/proc/self/mountinfo", DMESG_RESTRICT):
        files.write(path, garbage)
    logs, gaps = read_kernel_logs(Live(files, commands, KernelRing([garbage, None, b""])), boot_id=BOOT, since=NOW - 60)
    assert kills(logs) == [] and gaps
    assert not any(log.gap_free for log in logs)


def test_commands_that_hang_are_gaps(files: Files, commands: Commands) -> None:
    def hang(argv: Sequence[str]) -> Completed:
        return Completed(tuple(argv), None, b"", b"", timed_out=True, seconds=10.0)

    commands.answers.update(dmesg=hang, journalctl=hang)
    logs, gaps = read_kernel_logs(Live(files, commands, REFUSED), boot_id=BOOT, since=NOW - 60)
    assert logs == [] and whys(gaps).count("no answer within 10 s") == 2
    assert max(seconds for seconds, _ in commands.bounds) <= 10


def test_a_copied_root_is_not_mixed_with_this_machine(files: Files) -> None:
    logs, gaps = read_kernel_logs(Host(root=files.root), boot_id=BOOT, since=None)
    assert logs == []
    assert whys(gaps).count("not of the copied files") == 2


@needs_root
def test_log_files_that_are_kept_from_us(public_files: Files, commands: Commands, as_nobody: AsNobody) -> None:
    public_files.write("/var/log/kern.log", "x\n").chmod(0o640)
    host = Live(public_files, commands, REFUSED)
    said = as_nobody(lambda: [f"{gap.why}; {gap.grant}" for gap in read_kernel_logs(host, boot_id=BOOT, since=NOW)[1]])
    assert "/var/log/kern.log: Permission denied; run as root, or join group adm" in said


# The real thing.


@needs_root
def test_an_unprivileged_user_is_told_what_to_grant(as_nobody: AsNobody) -> None:
    """Debian's default is kernel.dmesg_restrict=1: /dev/kmsg is 0644 and open(2) gives EPERM."""
    if Path(DMESG_RESTRICT).read_text().strip() != "1":
        pytest.skip("kernel.dmesg_restrict is 0 here: everybody may read the log")

    def read() -> list[str]:
        with pytest.raises(PermissionError):
            os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        _, gaps = read_kernel_logs(Host(), boot_id=None, since=time.time() - 60)
        return [f"{gap.why}; {gap.grant}" for gap in gaps]

    said = as_nobody(read)
    assert said[0].startswith("/dev/kmsg: Operation not permitted; ")
    assert "dmesg_restrict=0" in said[0] or "--cap-add SYSLOG" in said[0]
    assert any(line.startswith("dmesg: ") and "Operation not permitted" in line for line in said)


@needs_root
def test_the_real_ring_in_order_of_trust() -> None:
    identity = read_identity(Host())
    logs, gaps = read_kernel_logs(Host(), boot_id=identity.boot_id, since=time.time() - 1)
    assert (logs[0].source, logs[0].live, logs[0].boot_id) == ("kmsg", True, identity.boot_id)
    assert logs[0].lines > 0 and len(logs) == 1 and gaps == []


@needs_cgroup_v1_memory
def test_a_real_kill_stands_in_the_real_log(limited_group: Path, eater: Eater) -> None:
    since = time.time()
    before = time.monotonic()
    pid = eater.process.pid
    assert eater.eat() == -9
    (log,), gaps = read_kernel_logs(Host(), boot_id=None, since=since)
    assert gaps == []
    (kill,) = [event for event in log.events if isinstance(event, OomKill) and event.pid == pid]
    assert kill.limit_group == f"/{limited_group.name}"
    assert kill.victim_group == f"/{limited_group.name}/inner"
    assert kill.limit == 64 << 20 and kill.scope == "memcg"
    assert kill.line.facility == 0 and kill.line.sequence is not None
    at = kill.line.moment.monotonic
    assert at is not None and before - 1 <= at <= time.monotonic() + 1


@needs_cgroup_v1_memory
def test_dmesg_itself_says_the_same(limited_group: Path, eater: Eater) -> None:
    """The second rung on the real command: the first is refused by hand."""

    class WithoutDevice(Host):
        def kernel_ring(self, timeout: float = 2.0, limit: int = 0) -> KernelRing:
            del timeout, limit
            raise ABSENT

    pid = eater.process.pid
    assert eater.eat() == -9
    logs, gaps = read_kernel_logs(WithoutDevice(), boot_id=None, since=time.time() - 1)
    assert [log.source for log in logs] == ["dmesg"], gaps
    (kill,) = [event for event in logs[0].events if isinstance(event, OomKill) and event.pid == pid]
    assert kill.limit_group == f"/{limited_group.name}" and kill.line.facility == 0

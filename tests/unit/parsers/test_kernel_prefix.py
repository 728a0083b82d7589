"""The same messages behind every prefix: what is known of time, facility, host and record number."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable

import pytest

from ftforensics.model.kernel import Fault, KernelLog, LogLine, Lost, OomKill
from ftforensics.model.moment import Moment
from ftforensics.parsers.kernel_log import OVERRUN, looks_like_kernel_log, parse_record, read_kernel_log
from synth.kernel_text import PYTHON, OomText, records, stamped

LINES = OomText().lines()
UTC = 1764424671.0  # 2025-11-29T13:57:51Z
UNKNOWN_ZONE = 14 * 3600.0


def each(form: str) -> bytes:
    return "".join(form.format(line) + "\n" for line in LINES).encode()


def dmesg_json(*, words: bool) -> bytes:
    said = []
    for line in LINES:
        level = '"fac": "kern",\n         "pri": "info"' if words else '"pri": 6'
        said.append(
            f'{{\n         {level},\n         "time":   573.622186,\n         "msg": {json.dumps(line)}\n      }}'
        )
    return ('{\n   "dmesg": [\n      ' + ",".join(said) + "\n   ]\n}\n").encode()


def journal(message: Callable[[str], object], **more: str) -> bytes:
    fixed = {
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
        "SYSLOG_FACILITY": "0",
        "_HOSTNAME": "node7",
        "_BOOT_ID": "0123456789abcdef0123456789abcdef",
        "__REALTIME_TIMESTAMP": "1764424671000000",
        "_SOURCE_MONOTONIC_TIMESTAMP": "573622186",
        "PRIORITY": "3",
    } | more
    return b"".join(json.dumps(fixed | {"MESSAGE": message(line)}).encode() + b"\n" for line in LINES)


UPTIME = Moment(monotonic=573.622186)
BOOT = "01234567-89ab-cdef-0123-456789abcdef"
JOURNAL = Moment(UTC, 573.622186, 1.0, BOOT)

# name: bytes, moment, facility, host
FORMS: dict[str, tuple[bytes, Moment, int | None, str | None]] = {
    "dmesg": (each("[  573.622186] {}"), UPTIME, None, None),
    "dmesg CRLF": (each("[  573.622186] {}\r"), UPTIME, None, None),
    "dmesg with caller": (each("[  573.622186] [ T4720] {}"), UPTIME, None, None),
    "console with caller": (each("[  573.622186][ T4720] {}"), UPTIME, None, None),
    "dmesg -d": (each("[  573.622186 <    0.000007>] {}"), UPTIME, None, None),
    "dmesg -t": (each("{}"), Moment(), None, None),
    "dmesg -x": (each("kern  :err   : [  573.622186] {}"), UPTIME, 0, None),
    "dmesg -r": (each("<3>[  573.622186] {}"), UPTIME, 0, None),
    "dmesg -e": (each("[  +0.000007] {}"), Moment(), None, None),
    "dmesg -T": (each("[Sat Nov 29 13:57:51 2025] {}"), Moment(UTC, None, UNKNOWN_ZONE), None, None),
    "dmesg -T German": (each("[Sa Nov 29 13:57:51 2025] {}"), Moment(), None, None),
    "dmesg -T Chinese": (each("[四 3月 20 13:57:51 2025] {}"), Moment(), None, None),
    "dmesg -T French": (each("[sam. 29 nov. 13:57:51 2025] {}"), Moment(), None, None),
    "dmesg -T Japanese": (each("[2025年 11月 29日 土曜日 13:57:51] {}"), Moment(), None, None),
    "dmesg iso": (each("2025-11-29T14:57:51,000000+01:00 {}"), Moment(UTC, None, 2.0), None, None),
    "dmesg in colour": (each("\x1b[32m[  573.622186] \x1b[0m{}"), UPTIME, None, None),
    "dmesg -J": (dmesg_json(words=False), UPTIME, 0, None),
    "dmesg -J -x": (dmesg_json(words=True), UPTIME, 0, None),
    "dmesg -J compact": (
        json.dumps({"dmesg": [{"pri": 6, "time": 573.622186, "msg": line} for line in LINES]}).encode(),
        UPTIME,
        0,
        None,
    ),
    "kmsg": (b"".join(records([line], at=573_622_186, first=n) for n, line in enumerate(LINES)), UPTIME, 0, None),
    "short": (each("Nov 29 13:57:51 node7 kernel: {}"), Moment(), None, "node7"),
    "short-precise": (each("Nov 29 13:57:51.000000 node7 kernel: {}"), Moment(), None, "node7"),
    "short-iso": (each("2025-11-29T13:57:51+0000 node7 kernel: {}"), Moment(UTC, None, 1.0), None, "node7"),
    "short-full": (each("Sat 2025-11-29 13:57:51 UTC node7 kernel: {}"), Moment(UTC, None, 1.0), None, "node7"),
    "short-full, zone by name": (
        each("Sat 2025-11-29 13:57:51 CET node7 kernel: {}"),
        Moment(UTC, None, UNKNOWN_ZONE),
        None,
        "node7",
    ),
    "short-monotonic": (each("[  573.622186] node7 kernel: {}"), UPTIME, None, "node7"),
    "short-unix": (each("1764424671.000000 node7 kernel: {}"), Moment(UTC, None, 0.001), None, "node7"),
    "with-unit": (each("Sat 2025-11-29 13:57:51 UTC node7 kernel: {}"), Moment(UTC, None, 1.0), None, "node7"),
    "cat": (each("{}"), Moment(), None, None),
    "journal JSON": (journal(str), JOURNAL, 0, "node7"),
    "journal JSON, bytes": (journal(lambda line: list(line.encode())), JOURNAL, 0, "node7"),
    "rsyslog": (each("Nov 29 13:57:51 node7 kernel: [  573.622186] {}"), UPTIME, None, "node7"),
    "rsyslog glued": (each("Nov 29 13:57:51 node7 kernel:{}"), Moment(), None, "node7"),
    "rsyslog glued, uptime": (each("Nov 29 13:57:51 node7 kernel:[  573.622186] {}"), UPTIME, None, "node7"),
    "syslog RFC3339": (
        each("2025-11-29T13:57:51.000000+00:00 node7 kernel: [  573.622186] {}"),
        Moment(UTC, 573.622186, 1.0),
        None,
        "node7",
    ),
    "syslog with priority": (each("<3>Nov 29 13:57:51 node7 kernel: {}"), Moment(), 0, "node7"),
    "repeated": (each("Nov 29 13:57:51 node7 kernel: message repeated 2 times: [ {}]"), Moment(), None, "node7"),
    "date in another language": (each("29. Nov 13:57:51 node7 kernel: {}"), Moment(), None, None),
    "CRI": (each("2025-11-29T13:57:51.123456789Z stdout F [  573.622186] {}"), UPTIME, None, None),
    "Docker": (
        b"".join(
            json.dumps(
                {"log": f"[  573.622186] {line}\n", "stream": "stdout", "time": "2025-11-29T13:57:51.1Z"}
            ).encode()
            + b"\n"
            for line in LINES
        ),
        UPTIME,
        None,
        None,
    ),
    "quoted": (each("> [  573.622186] {}"), UPTIME, None, None),
    "busybox": (each("[  573.622186] {}"), UPTIME, None, None),
    "busybox -r": (each("<3>[  573.622186] {}"), UPTIME, 0, None),
}


def kill_of(log: KernelLog) -> OomKill:
    (kill,) = [event for event in log.events if isinstance(event, OomKill)]
    return kill


@pytest.mark.parametrize("form", FORMS)
def test_every_format_tells_the_same_kill(form: str) -> None:
    data, moment, facility, host = FORMS[form]
    kill = kill_of(read_kernel_log(data))
    plain = kill_of(read_kernel_log(stamped(LINES)))
    for name in OomKill.__struct_fields__:
        if name not in ("line", "header", "limits", "constraint"):
            assert getattr(kill, name) == getattr(plain, name), name
    assert kill.line.text == plain.line.text
    assert kill.line.moment == moment
    assert kill.line.facility == facility
    assert kill.line.host == host
    assert not kill.line.forgeable


@pytest.mark.parametrize("form", FORMS)
def test_every_format_is_recognised(form: str) -> None:
    assert looks_like_kernel_log(FORMS[form][0])


@pytest.mark.parametrize(
    "form", [name for name in FORMS if not name.startswith(("dmesg -J", "kmsg")) and "JSON" not in name]
)
def test_every_text_format_in_a_large_log(form: str) -> None:
    """Past the size that is read line by line, the search for words decides what is looked at."""
    data = FORMS[form][0]
    first = data[: data.index(b"\n") + 1]
    noise = b"".join(first.replace(LINES[0].encode(), b"usb %d-1: reset" % n) for n in range(20_000))
    whole = noise * 2 + data + noise * 2
    while len(whole) <= 1 << 20:
        whole = noise + whole
    kill = kill_of(read_kernel_log(whole))
    assert (kill.pid, kill.limit, len(kill.tasks), kill.trigger_pid) == (4711, 4 << 30, 3, 4720)


def test_line_numbers_point_into_the_file() -> None:
    lines = stamped(["usb 1-1: reset"] * 30_000 + LINES + ["usb 1-1: reset"] * 30_000).split(b"\n")
    kill = kill_of(read_kernel_log(b"\n".join(lines)))
    assert kill.line.number is not None
    assert b"Killed process 4711" in lines[kill.line.number - 1]


# Facilities: who wrote it.


@pytest.mark.parametrize(
    "line",
    [
        "12,5,573622186,-;{}",
        "user  :info  : [  573.622186] {}",
        "<12>[  573.622186] {}",
        "Nov 29 13:57:51 node7 python[7]: {}",
        "2025-11-29T13:57:51.000000+00:00 node7 trainer: {}",
        '{{"_TRANSPORT":"syslog","SYSLOG_FACILITY":"0","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"{}"}}',
        '{{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"1","MESSAGE":"{}"}}',
        '{{"_TRANSPORT":"stdout","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"{}"}}',
        "Nov 29 13:57:51 node7 python[7]: kernel: [  573.622186] {}",
    ],
)
def test_words_of_a_program_are_never_the_kernels(line: str) -> None:
    log = read_kernel_log((line.format(OomText().killed(PYTHON)) + "\n").encode())
    assert [event.line.facility for event in log.events if event.line.facility in (None, 0)] == []
    assert all(event.line.forgeable for event in log.events)


def test_what_a_program_wrote_into_kmsg_is_kept_and_marked() -> None:
    text = OomText().killed(PYTHON)
    log = read_kernel_log(records(["real"], priority=6, first=1) + records([text], priority=12, first=2))
    (kill,) = log.events
    assert isinstance(kill, OomKill) and kill.line.forgeable and kill.line.facility == 1


# Raw records.


def test_a_raw_record() -> None:
    record = parse_record(
        "6,1234,98765432,-,caller=T42;usb 1-1: caf\\xc3\\xa9 \\x5c \\x09x\n SUBSYSTEM=usb\n DEVICE=c189:5\n"
    )
    assert record is not None
    assert record.line == LogLine("usb 1-1: café \\ \tx", None, 1234, 0, Moment(monotonic=98.765432))
    assert (record.level, record.flag, record.caller) == (6, "-", "T42")
    assert record.dictionary == [("SUBSYSTEM", "usb"), ("DEVICE", "c189:5")]


@pytest.mark.parametrize("text", ["", "x", "6,1,2", "6,1,2,-no semicolon", "a,b,c,d;e", "\n", ";"])
def test_no_record(text: str) -> None:
    assert parse_record(text) is None


def test_dictionary_lines_are_no_messages() -> None:
    data = b"6,1,10,-;usb 1-1: reset\n SUBSYSTEM=usb\n DEVICE=+usb:1-1\n6,2,11,-;usb 1-1: reset\n"
    log = read_kernel_log(data)
    assert (log.lines, log.gap_free, log.events) == (2, True, [])
    assert (log.first, log.last) == (Moment(monotonic=10e-6), Moment(monotonic=11e-6))


@pytest.mark.parametrize("flags", [("c", "+"), ("-", "+"), ("-", "c")])
def test_a_message_in_pieces(flags: tuple[str, str]) -> None:
    data = f"3,1,10,{flags[0]};Memory cgroup out of memory: Killed process 9 (python)\n"
    data += f"3,2,10,{flags[1]}; total-vm:4kB, anon-rss:4kB, file-rss:0kB\n"
    (kill,) = read_kernel_log(data.encode()).events
    assert isinstance(kill, OomKill) and (kill.pid, kill.total_vm) == (9, 4096)


def test_missing_records_are_counted() -> None:
    data = records(["a", "b"], first=1) + records(["c"], first=10)
    log = read_kernel_log(data)
    (lost,) = log.events
    assert isinstance(lost, Lost) and (lost.kind, lost.count) == ("sequence", 7)
    assert not log.gap_free


def test_a_reader_that_was_overrun_says_so() -> None:
    data = records(["a"], first=1) + OVERRUN.encode() + b"\n" + records(["b"], first=2)
    log = read_kernel_log(data)
    (lost,) = log.events
    assert isinstance(lost, Lost) and lost.kind == "overrun"
    assert not log.gap_free
    assert looks_like_kernel_log(data)
    marks = (OVERRUN.encode() + b"\n") * 2
    again = read_kernel_log(marks + records(["a", "b"]))
    assert ([type(event) for event in again.events], again.gap_free, again.lines) == ([Lost, Lost], False, 2)


def test_only_record_numbers_prove_that_nothing_is_missing() -> None:
    assert read_kernel_log(records(["a", "b"])).gap_free
    assert not read_kernel_log(stamped(["a", "b"])).gap_free
    assert not read_kernel_log(b"").gap_free
    assert not read_kernel_log(records(["a", "b"]) + b"garbage\n" + records(["c"], first=802)).gap_free


def test_an_empty_log_has_no_messages() -> None:
    for nothing in (b"", b"\n", b"\r\n\n"):
        log = read_kernel_log(nothing)
        assert (log.lines, log.events, log.first, log.last, log.oom_blocks) == (0, [], None, None, 0)
        assert not looks_like_kernel_log(nothing)


# Times.


def test_relative_times_are_summed() -> None:
    text = OomText().killed(PYTHON)
    data = f"[Nov29 13:57] a\n[  +1.500000] b\n[  +2.250000] {text}\n[Nov29 14:00] c\n".encode()
    kill = kill_of(read_kernel_log(data, year=2025))
    assert kill.line.moment.realtime == pytest.approx(UTC - 51 + 30 + 3.75)
    assert kill.line.moment.accuracy == UNKNOWN_ZONE
    assert kill_of(read_kernel_log(data)).line.moment == Moment()


def test_a_syslog_year_is_the_year_of_the_logs_end() -> None:
    text = OomText().killed(PYTHON)
    other = text.replace("4711", "4712")
    data = f"Dec 31 23:59:59 n kernel: {text}\nJan  1 00:00:01 n kernel: {other}\n".encode()
    first, second = (event.line.moment for event in read_kernel_log(data, year=2026).events)
    assert first.realtime == 1767225599.0  # 2025-12-31T23:59:59Z
    assert second.realtime == 1767225601.0
    assert [event.line.moment for event in read_kernel_log(data).events] == [Moment(), Moment()]


def test_the_year_turns_after_the_last_event() -> None:
    text = OomText().killed(PYTHON)
    data = f"Dec 30 23:59:59 n kernel: a\nDec 31 23:59:59 n kernel: {text}\nJan  7 00:00:01 n kernel: quiet\n".encode()
    log = read_kernel_log(data, year=2026)
    assert kill_of(log).line.moment.realtime == 1767225599.0  # 2025-12-31T23:59:59Z
    assert log.first is not None and log.first.realtime == 1767225599.0 - 86400
    assert log.last is not None and log.last.realtime == 1767225601.0 + 6 * 86400


def test_a_restart_separates_clocks() -> None:
    """The kernel's clock starts again: what stands before is of another boot, whatever boot the caller names."""
    text = OomText().killed(PYTHON)
    lines = [f"[  573.622186] {text}", "[    0.000000] Linux version 6.18.44 (x) #1", f"[  573.700000] {text}"]
    data = "".join(f"Nov 29 13:57:51 n kernel: {line}\n" for line in lines).encode()
    first, second = (event.line.moment for event in read_kernel_log(data, boot_id="this", live=True).events)
    assert second.boot_id == "this"
    assert first.boot_id not in (None, "this")
    log = read_kernel_log(data, boot_id="this")
    assert log.first is not None and log.first.boot_id == first.boot_id


def test_a_boot_may_say_something_before_its_first_line() -> None:
    said = [
        "microcode: updated early",
        "Linux version 6.18.44 (x) #1",
        *["usb 1-1: reset"] * 300,
        OomText().killed(PYTHON),
    ]
    log = read_kernel_log(stamped(said, at=0.0), boot_id="this")
    assert log.first is not None and log.first.boot_id == "this"
    assert kill_of(log).line.moment.boot_id == "this"


def test_journal_entries_carry_their_boot() -> None:
    kill = kill_of(read_kernel_log(journal(str), boot_id="another"))
    assert kill.line.moment.boot_id == BOOT


def test_since_leaves_out_what_is_surely_older() -> None:
    data = FORMS["dmesg iso"][0]
    assert read_kernel_log(data, since=UTC + 100).events == []
    assert len(read_kernel_log(data, since=UTC + 1).events) == 1  # within the clock's accuracy
    assert len(read_kernel_log(FORMS["dmesg"][0], since=UTC + 100).events) == 1  # nobody can tell


def test_first_and_last_cover_the_log() -> None:
    log = read_kernel_log(stamped(LINES, at=100.0, step=1.0))
    assert (log.first, log.last) == (Moment(monotonic=100.0), Moment(monotonic=100.0 + len(LINES) - 1))


@pytest.mark.parametrize("date", ["Feb 30 13:57:51", "Jan  0 25:61:61", "Nov 99 00:00:00"])
def test_impossible_dates_are_no_time(date: str) -> None:
    data = f"{date} n kernel: {OomText().killed(PYTHON)}\n".encode()
    assert kill_of(read_kernel_log(data, year=2025)).line.moment == Moment()


# Mangled text.


def test_a_journal_record_of_many_lines() -> None:
    """One printk with line feeds, as rsyslog stores it."""
    data = f"Nov 29 13:57:51 n kernel: {'#012'.join(LINES[:-1])}\nNov 29 13:57:51 n kernel: {LINES[-1]}\n".encode()
    kill = kill_of(read_kernel_log(data))
    assert (kill.pid, kill.limit, len(kill.tasks)) == (4711, 4 << 30, 3)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_terminal_wrapped_the_lines(width: int) -> None:
    text = stamped(LINES).decode()
    wrapped = [line[at : at + width] for line in text.splitlines() for at in range(0, len(line), width)]
    for dropped in (False, True):  # some terminals drop the blank at the width
        said = "\n".join(line.rstrip() if dropped else line for line in wrapped) + "\n"
        kill = kill_of(read_kernel_log(said.encode()))
        assert (kill.pid, kill.comm, kill.limit, kill.anon_rss) == (4711, "python3", 4 << 30, 900_000 * 4096)
        assert kill.limit_group is not None and kill.limit_group.startswith("/slurm/uid_1000")


def test_a_mail_program_wrapped_the_words() -> None:
    wrapper = textwrap.TextWrapper(76, break_on_hyphens=False, break_long_words=False)
    wide = [part for line in stamped(LINES).decode().splitlines() for part in wrapper.wrap(line)]
    kill = kill_of(read_kernel_log("\n".join(wide).encode()))
    assert (kill.pid, kill.anon_rss, kill.uid) == (4711, 900_000 * 4096, 1000)


def test_what_is_no_kernel_log() -> None:
    for text in (
        "W1128 08:24:03.805000 77 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 9 SIGTERM\n",
        "[2025-11-29 13:57:51,123] [INFO] [launch.py:335:sigkill_handler] Killing subprocess 4711\n",
        "[1764424671.123456] [node7:4711:0]    ucp_worker.c:1855 UCX  INFO  ep_cfg[0]: tag(self/memory)\n",
        "node7:4711:4800 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n",
        '{"step": 12, "loss": 1.5, "time": 573.6}\n',
        "2025-11-29T13:57:51.123456789Z stdout F epoch 3 loss 1.5\n",
        "Nov 29 13:57:51 node7 slurmd[812]: error: Detected 1 oom_kill event in StepId=7.0\n",
        "[2025-11-29T13:57:51.123] [7.0] error: Detected 1 oom_kill event in StepId=7.0.\n",
        "Traceback (most recent call last):\nRuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.\n",
    ):
        assert not looks_like_kernel_log(text.encode() * 20), text


def test_a_program_log_that_quotes_the_kernel_stays_a_program_log() -> None:
    log = b"".join(b"step %d loss 1.5\n" % n for n in range(300)) + stamped(LINES)
    assert not looks_like_kernel_log(log)


def test_a_syslog_with_a_few_kernel_lines_is_one() -> None:
    log = "".join(f"Nov 29 13:57:5{n % 10} node7 systemd[1]: Started Session {n}.\n" for n in range(300))
    assert not looks_like_kernel_log(log.encode())
    assert looks_like_kernel_log((log + f"Nov 29 13:58:00 node7 kernel: {LINES[0]}\n").encode())


def test_a_fault_in_two_pieces_with_another_task_between() -> None:
    """Seen on 6.18: two threads fault at once, and the second half of the first line comes later."""
    lines = [
        "python3[828]: segfault at 28 ip 00007f30b738957e sp 00007f30b6ffe858 error 4",
        "python3[829]: segfault at 28 ip 00007f40b738957e sp 00007f30b6ffe858 error 4",
        " in b.so[257e,7f40b7389000+1000] likely on CPU 1 (core 1, socket 0)",
        "Code: c0 78 07 89 df e8 92 fc ff ff",
        " in a.so[257e,7f30b7389000+1000] likely on CPU 0 (core 0, socket 0)",
    ]
    swapped = [*lines[:2], lines[4], lines[3], lines[2]]
    pieces = records(lines).replace(b",-; in", b",c; in")
    for data in (stamped(lines), stamped(swapped), records(lines), records(swapped), pieces):
        one, two = read_kernel_log(data).events
        assert isinstance(one, Fault) and isinstance(two, Fault)
        assert (one.tid, one.file, one.cpu) == (828, "a.so", 0)
        assert (two.tid, two.file, two.cpu) == (829, "b.so", 1)

"""This machine's own kernel log: a real OOM kill with an awkward name, read raw and in every format of its dmesg."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import needs_cgroup_v1_memory, needs_dmesg_formats, needs_kmsg
from ftforensics.model.kernel import KernelEvent, KernelLog, LogLine, OomKill
from ftforensics.parsers.kernel_log import looks_like_kernel_log, parse_record, read_kernel_log
from ground.memory_group import MemoryGroup

COMM = "we)i rd,pid=1]\\"
GROW = (
    "import ctypes, sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)\n"
    "held = []\n"
    "while True: held.append(bytearray(b'x' * (1 << 20)))\n"
)

# What dmesg --raw prints is what its -F option reads, so these are all printed from one snapshot.
FORMATS = [
    ["-t"],
    ["-T"],
    ["--time-format=iso"],
    ["-x"],
    ["-e"],
    ["-d"],
    ["-x", "-T"],
    ["-x", "-e"],
    ["-d", "-T"],
    ["-e", "-d"],
    ["--color=always"],
    [],
]


def snapshot(*options: str) -> tuple[list[bytes], bytes]:
    """All records of /dev/kmsg, and the same as dmesg prints them; taken while nobody wrote."""
    while True:
        before, printed, after = kmsg(), dmesg(*options), kmsg()
        if before == after:
            return before, printed


def kmsg() -> list[bytes]:
    found: list[bytes] = []
    file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    found.append(os.read(file, 8192))
                except BrokenPipeError:  # overwritten while it was read: the oldest are gone
                    found.clear()
    finally:
        os.close(file)
    return found


def dmesg(*options: str) -> bytes:
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    return subprocess.run(["dmesg", *options], capture_output=True, check=True, env=environment).stdout


def content(event: KernelEvent) -> list[object]:
    """All that does not depend on the format. Of two faults at once, the CPUs stand in lines of their own behind both:
    which is whose, only the device's own flags can tell."""
    values = [(name, getattr(event, name)) for name in event.__struct_fields__ if name != "cpu"]
    said = [(name, value.text if isinstance(value, LogLine) else value) for name, value in values]
    return [type(event), *said]


@needs_kmsg
@needs_cgroup_v1_memory
@needs_dmesg_formats
def test_every_format_of_dmesg_tells_what_the_kernel_said(tmp_path: Path) -> None:
    with MemoryGroup(64 << 20) as group:
        child = subprocess.Popen([*group.enter, sys.executable, "-I", "-S", "-c", GROW, COMM])
        assert child.wait(timeout=60) == -9
        assert group.kills() == 1
        name = group.name
    raw, text = snapshot("-r")
    log = read_kernel_log(raw, source="kmsg", live=True)
    kill = mine(log, child.pid)
    assert kill.comm == COMM
    assert kill.line.facility == 0
    assert (kill.scope, kill.limit, kill.limit_group, kill.victim_group) == ("memcg", 64 << 20, name, name)
    assert kill.usage is not None and kill.usage > 63 << 20
    assert [task.pid for task in kill.tasks] == [child.pid]
    assert kill.tasks[0].name == COMM
    assert kill.trigger_pid == child.pid
    assert kill.kernel == os.uname().release
    assert kill.anon_rss is not None and kill.tasks[0].rss_anon in (None, kill.anon_rss)
    assert log.lines == len(raw)
    assert log.gap_free

    wanted = [content(event) for event in log.events]
    from_raw = read_kernel_log(text)
    assert [content(event) for event in from_raw.events] == wanted
    assert mine(from_raw, child.pid).line.facility == 0
    stored = tmp_path / "kernel.raw"
    stored.write_bytes(text)
    for options in FORMATS:
        printed = dmesg("-F", str(stored), *options)
        assert looks_like_kernel_log(printed), options
        again = read_kernel_log(printed, year=2026)
        assert [content(event) for event in again.events] == wanted, options
        assert again.oom_blocks == log.oom_blocks, options
        found = mine(again, child.pid).line
        assert found.number is not None
        assert b"Killed process" in b"\n".join(printed.split(b"\n")[found.number - 1 : found.number + 4])
        if found.moment.monotonic is not None:
            assert found.moment.monotonic == pytest.approx(kill.line.moment.monotonic, abs=1e-6)
        assert found.facility == (0 if "-x" in options else None), options
    for options in (["-J"], ["-J", "-x"]):  # -F with --json is broken in util-linux 2.38: it keeps the prefixes
        raw, printed = snapshot(*options)
        assert looks_like_kernel_log(printed)
        again = read_kernel_log(printed)
        assert [content(event) for event in again.events] == [content(event) for event in read_kernel_log(raw).events]
        assert mine(again, child.pid).line.facility == 0


@needs_kmsg
def test_every_record_of_this_machine_is_one() -> None:
    for raw in kmsg():
        record = parse_record(raw.decode())
        assert record is not None, raw
        assert record.line.sequence is not None and record.level in range(8)
        assert record.line.text.isprintable() or re.search(r"[\t\n\xa0-\U0010ffff]", record.line.text)


def mine(log: KernelLog, pid: int) -> OomKill:
    """pid: as we see it, which is the kernel's number only in the initial pid namespace."""
    kills = [event for event in log.events if isinstance(event, OomKill) and event.comm == COMM]
    assert kills and kills[-1].pid == pid
    return kills[-1]

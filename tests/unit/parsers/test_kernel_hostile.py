"""Kernel logs that mean harm, or nothing: any bytes, any cuts, any order."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftforensics.model.kernel import KernelEvent, KernelLog, OomKill
from ftforensics.parsers import kernel_log
from ftforensics.parsers.kernel_log import OVERRUN, looks_like_kernel_log, parse_record, read_kernel_log
from ftforensics.parsers.kernel_sieve import Sieve
from synth.kernel_text import KERNELS, PYTHON, WORKER, OomText, records, stamped

PREFIXES = [
    "",
    "[  573.622186] ",
    "[  573.622186][ T4720] ",
    "[  +0.000007] ",
    "[Nov29 13:57] ",
    "[Sat Nov 29 13:57:51 2025] ",
    "2025-11-29T13:57:51,000000+01:00 ",
    "kern  :err   : [  573.622186] ",
    "<3>[  573.622186] ",
    "Dec 31 13:57:51 n kernel: ",
    "Jan  1 13:57:51 n kernel: [  573.622186] ",
    "Nov 29 13:57:51 n python[7]: ",
    "12,5,573622186,-;",
    "6,7,573622190,c;",
    '{"MESSAGE":"',
    '{"MESSAGE":[75,105,108,108,101,100,32,112,',
    '{"log":"',
    '   "msg": "',
    "> ",
]
WORDS = [
    *(line for version in ("2.6.18", "2.6.32", "3.10", "4.19", "6.18") for line in OomText(KERNELS[version]).lines()),
    *OomText(members=(WORKER,)).lines()[-3:],
    "python[7]: segfault at 0 ip 00007f99c307b31d sp 00007ffeeb59f030 error 4",
    " in a.so[0,7f99c307b000+1000] likely on CPU 1 (core 1, socket 0)",
    "potentially unexpected fatal signal 11.",
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "Oops: 0000 [#1] SMP",
    "RIP: 0010:f+0x1/0x2 [nvidia]",
    "NVRM: API mismatch: the client has the version 535.54.03, but",
    "NVRM: this kernel module has the version 525.125.06.  Please",
    "NVRM: Xid (PCI:0000:03:00): 31, pid=7, name=p, MMU",
    "Linux version 6.18.44",
    "oom_kill_process: 7 callbacks suppressed",
    "EXT4-fs (dm-0): Remounting filesystem read-only",
    OVERRUN,
    "usb 1-1: reset",
    "}",
    "{",
    '{"dmesg": [',
]

lines = st.builds(
    lambda prefix, word, cut, end: f"{prefix}{word}"[:cut] + end,
    st.sampled_from(PREFIXES),
    st.sampled_from(WORDS) | st.text(max_size=40),
    st.integers(0, 400),
    st.sampled_from(["\n", "\r\n", "", '"}\n', '"},{\n', "\n\n", "]}\n"]),
)
logs = st.lists(lines, max_size=60).map(lambda said: "".join(said).encode("utf-8", "surrogatepass")) | st.binary(
    max_size=300
)


@given(logs)
@settings(max_examples=300, deadline=None)
def test_any_log_is_read(data: bytes) -> None:
    log = read_kernel_log(data, year=2026, since=1.0, boot_id="b")
    assert len(log.events) <= data.count(b"\n") * 3 + 3
    assert log.lines <= data.count(b"\n") + 1 + data.count(b'"msg"')
    looks_like_kernel_log(data)
    parse_record(data.decode("utf-8", "replace"))


@given(logs, st.lists(st.integers(0, 3000), max_size=8))
@settings(max_examples=200, deadline=None)
def test_the_cuts_between_chunks_do_not_matter(data: bytes, cuts: list[int]) -> None:
    bounds = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    pieces = [data[a:b] for a, b in itertools.pairwise(bounds)]
    whole = read_kernel_log(data, year=2026)
    assert read_kernel_log(iter(pieces), year=2026) == whole
    assert read_kernel_log((data[at : at + 1] for at in range(len(data))), year=2026) == whole


@given(data=logs, step=st.integers(1, 500))
@settings(max_examples=200, deadline=None)
def test_nor_do_they_in_a_large_log(data: bytes, step: int) -> None:
    """A few hundred bytes are a large log here, in many chunks, and lines are cut."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PASTE", 256), ("CHUNK", 64), ("MAX_LINE", 300), ("AT_START", 4)):
            patch.setattr(kernel_log, name, value)
        whole = read_kernel_log(data, year=2026)
        assert read_kernel_log((data[at : at + step] for at in range(0, len(data), step)), year=2026) == whole


def named(log: KernelLog) -> set[int]:
    return {event.pid for event in log.events if isinstance(event, OomKill)}


@given(st.sampled_from(sorted(KERNELS)), st.booleans(), st.integers(0, 5000))
@settings(max_examples=200, deadline=None)
def test_a_log_cut_at_its_end_invents_no_kill(version: str, raw: bool, cut: int) -> None:
    text = OomText(KERNELS[version], members=(WORKER,)).lines()
    data = records(text) if raw else stamped(text)
    assert named(read_kernel_log(data[:cut])) <= named(read_kernel_log(data))


@given(logs, st.integers(0, 3000))
@settings(max_examples=200, deadline=None)
def test_nor_does_any_log(data: bytes, cut: int) -> None:
    assert named(read_kernel_log(data[:cut])) <= {4711, 4720} | named(read_kernel_log(data))


@given(st.lists(st.sampled_from([word for word in WORDS if word != OVERRUN]), max_size=40))
@settings(max_examples=60, deadline=None)
def test_searching_for_words_finds_what_reading_every_line_finds(said: list[str]) -> None:
    """A log large enough to be searched has the events of a small one, whatever stands in it."""
    quiet = ["usb 1-1: reset"] * 300  # so that neither begins inside a report

    def told(events: list[KernelEvent]) -> list[str]:
        return [event.line.text for event in events]

    small = read_kernel_log(stamped([*quiet, *said]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_log, "PASTE", 64)
        large = read_kernel_log(stamped([*quiet, *said]))
    assert told(large.events) == told(small.events)
    assert large.oom_blocks == small.oom_blocks
    assert large.events == small.events


@given(
    st.lists(st.binary(max_size=30), max_size=30), st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=4)
)
def test_the_sieve_keeps_every_line_with_a_word(said: list[bytes], words: list[bytes]) -> None:
    words = [word for word in words if b"\n" not in word and word.translate(None, b"0123456789abcdef")]
    block = b"\n".join(said)
    sieve = Sieve(tuple(words))
    for _ in range(2):  # the second time from memory
        kept = set(sieve.keeps(block))
        assert {at for at, line in enumerate(block.split(b"\n")) if any(word in line for word in words)} <= kept


@pytest.mark.parametrize(
    "piece",
    [
        "Killed process 1 (",
        "Killed process 1 () total-vm:",
        "oom-kill:constraint=CONSTRAINT_X,task=,pid=1,uid=",
        "x[1]: segfault at ",
        "traps: a[1] b ip:",
        "[1] 1 1 1 1 1 1 1 ",
        "invoked oom-killer: gfp_mask=0x",
        "NVRM: Xid (PCI:",
        "kernel: ",
        "> ",
        "[ ",
        "\\x5c",
        "#012",
        "{",
        '"a": ',
        "( [<0> ",
        "Oops [#",
        " error, dev ",
        "CPU: 1 PID: 1 Comm: ",
        "Tainted: ",
    ],
)
def test_repetition_costs_no_more_than_its_length(piece: str) -> None:
    for line in (piece * (200_000 // len(piece)), "[  573.622186] " + piece * (200_000 // len(piece))):
        data = (line + "\n").encode() * 4 + (piece + "\n").encode() * 2000
        started = time.process_time()
        read_kernel_log(data)
        looks_like_kernel_log(data)
        assert time.process_time() - started < 5


def test_only_the_last_events_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "EVENTS_KEPT", 10)
    said = [OomText().killed(PYTHON).replace("4711", str(n)) for n in range(1, 36)]
    log = read_kernel_log(stamped(said))
    assert [event.pid for event in log.events if isinstance(event, OomKill)] == list(range(26, 36))
    (gap,) = log.gaps
    assert "last 10 of 35" in gap.why


CHILD = """
import resource, sys
from ftforensics.parsers.kernel_log import read_kernel_log
from synth.kernel_text import OomText, stamped
resource.setrlimit(resource.RLIMIT_AS, (300 << 20,) * 2)
noise = b"".join(b"[%12.6f] usb 1-%d: reset\\n" % (n / 10, n) for n in range(20_000))
report = stamped(OomText().lines())
def chunks():
    for _ in range(600):
        yield noise
    yield report
    yield b"x" * (1 << 20)
    for _ in range(300):
        yield b"y" * (1 << 20)  # a line without an end
log = read_kernel_log(chunks())
print(len(log.events), log.lines)
"""


def test_a_gigabyte_fits_into_little_memory() -> None:
    made = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == ["1", str(600 * 20_000 + len(OomText().lines()) + 1)]

"""Reading a log of any size, in any pieces, with anything in it."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ftforensics.model.launcher import ExceptionSeen, ProcessDied
from ftforensics.parsers.launcher import looks_like_launcher_log, read_launcher_log
from ftforensics.parsers.launcher_line import LONGEST

FOLDER = Path(__file__).parent / "fixtures" / "launcher"
RECORDED = [path.read_bytes() for path in sorted(FOLDER.glob("*.log"))]
LINES = sorted({line for log in RECORDED for line in log.split(b"\n")})
KILLED = b"x/api.py:1] failed (exitcode: -9) local_rank: 1 (pid: 10749) of binary: /usr/bin/python3"
OTHERS = [
    b"[rank3]: Traceback (most recent call last):", b"Root Cause (first observed failure):", b"Failures:",
    b"\x1b[31mKilled\x1b[0m", b"train.sh: line 3:  77 Killed   python x", b"\r 5%|# | 1/20",
    b"terminate called after throwing an instance of 'X'",
    b"  what():  y", b"=   PID 4 RUNNING AT n1", b"=   EXIT CODE: 9", b"  exitcode  : -9 (pid: 3)", b"(): corrupted ",
    b"NCCL error in: a.cpp:1, unhandled", b"torch.DistBackendError: NCCL error in: x", b"ncclRemoteError: y",
    b'{"log":"Killed\\n","time":"2026-11-29T14:29:31.5Z"}', b"2026-13-29T14:29:31Z Killed",
    b"[1,2]<stderr>:  File \"x\", line 3, in f",
    "脚本.sh: 第 3 行: 77 已杀死   python".encode(), b"srun: error: n1: tasks 0-99999999: Killed", b"\0\xff\xfe",
]  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    line = st.one_of(st.sampled_from(LINES), st.sampled_from(OTHERS), st.binary(max_size=40))
    ends = st.sampled_from([b"\n", b"\r\n", b"\r", b"", b"\n\n"])
    return b"".join(part for pair in draw(st.lists(st.tuples(line, ends), max_size=60)) for part in pair)


@settings(max_examples=150, deadline=None)
@given(logs(), st.lists(st.integers(0, 4000), max_size=12), st.sampled_from([0, 1, 3, 64]))
def test_any_pieces_give_the_same(log: bytes, cuts: list[int], width: int) -> None:
    whole = read_launcher_log(log)
    places = sorted({min(cut, len(log)) for cut in cuts})
    pieces = [log[start:end] for start, end in zip([0, *places], [*places, len(log)], strict=True)]
    assert read_launcher_log(pieces) == whole
    if width:
        assert read_launcher_log(log[at : at + width] for at in range(0, len(log), width)) == whole
    looks_like_launcher_log(log)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000))
def test_noise_is_no_event(noise: bytes) -> None:
    assert read_launcher_log(noise).lines <= noise.count(b"\n") + 1
    looks_like_launcher_log(noise)


def test_a_line_without_end_is_bounded() -> None:
    """A progress bar without line ends, or a tensor printed in one line."""

    def pieces() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 100_000
        yield b"\n" + KILLED + b"\n"

    tracemalloc.start()
    log = read_launcher_log(pieces())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [event.line.number for event in log.events] == [2]
    assert log.lines == 2
    assert peak < 8 << 20  # of 20 MB


def test_the_rest_of_a_long_line_is_not_looked_at() -> None:
    """The same part of it is dropped, wherever it stands in the pieces in which a log is searched (of 1 MiB)."""
    for before in (LONGEST - 20, LONGEST - 2, LONGEST + 5):
        line = b"['" + b"x" * before + b"'] exits with return code = -9\n"
        for lines_before in (0, 1, 524_288 - 1000, 524_288 - 33_000):
            assert read_launcher_log(b"a\n" * lines_before + line + b"step 1\n").events == []
    assert len(read_launcher_log(b"a\n['x'] exits with return code = -9\n").events) == 1


def test_memory_does_not_grow_with_the_log() -> None:
    def pieces(count: int) -> Iterator[bytes]:
        for number in range(count):
            yield b"".join(b"%s %x\n" % (b"x" * 500, number * 7919 + one) for one in range(200))
            yield KILLED + b"\n"

    def peak(count: int) -> int:
        tracemalloc.start()
        read_launcher_log(pieces(count))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(1)
    assert peak(100) < 1.5 * peak(25)  # 10 MB and 2.5


def test_of_too_many_events_the_first_and_the_last_stay() -> None:
    def pieces() -> Iterator[bytes]:
        for pid in range(1, 30_001):
            yield b"failed (exitcode: 1) local_rank: 0 (pid: %d) of binary: p\n" % pid

    log = read_launcher_log(pieces())
    pids = [event.pid for event in log.events if isinstance(event, ProcessDied)]
    assert log.cut
    assert (pids[0], pids[-1], len(pids)) == (1, 30_000, 12_000)
    assert not read_launcher_log(RECORDED[0]).cut


HOSTILE = [
    b"Traceback (most recent call last):" * 1500,
    b"a: " * 20_000 + b"1: 2 Killed  x",
    b"Killed " * 9000,
    b"1: " * 20_000 + b"Killed",
    b"[rank1]: " * 7000 + b"Traceback (most recent call last):",
    b"terminate called after throwing an instance of '" + b"'" * 60_000,
    b"Assertion `" * 5000 + b"' failed.",
    b"DataLoader worker (pid(s) " + b"1, " * 20_000 + b") exited unexpectedly",
    b"CalledProcessError: Command " * 2000 + b"died with <Signals.SIGKILL: 9>.",
    b"\x1b]" * 30_000 + b"Killed",
    b"\x1b[" * 30_000 + b"Killed",
    b"fish: " + b'"' * 30_000 + b" terminated by signal SIGKILL",
    b"process 1 spawned with command: [" + b"'--local_rank', " * 4000,
    b"[" * 30_000 + b"] exits with return code = -9",
    b"gloo/transport/" * 4000 + b"Traceback (most recent call last):",
    b"Memory on the node " * 3000,
    b"*** Error in `" * 4000,
    b"libc++abi: terminating due to uncaught exception of type " + b"a: " * 20_000,
]


def test_no_line_takes_long() -> None:
    """Patterns are bounded: a line made to be slow costs no more than its length."""
    for line in HOSTILE:
        began = time.process_time()
        read_launcher_log((line + b"\n") * 8)
        taken = time.process_time() - began
        assert taken < 1.0, (line[:60], taken)


def test_time_is_linear() -> None:
    text = b"".join(RECORDED) + b"step 1 loss 0.5\n" * 2000
    read_launcher_log(text)

    def cost(times: int) -> float:
        began = time.process_time()
        read_launcher_log(text for _ in range(times))
        return time.process_time() - began

    small = min(cost(2) for _ in range(3))
    assert cost(16) < 8 * small * 3


def test_progress_is_told() -> None:
    told: list[int] = []
    log = b"a\n" * 3_000_000
    read_launcher_log(log, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == len(log)
    assert len(told) > 3


# --- recognising ------------------------------------------------------------------------------------------------------

KERNEL_LOGS = [
    b"[ 8421.111111] python invoked oom-killer: gfp_mask=0xcc0\n[ 8421.222222] Killed process 77 (python)\n",
    b"6,1234,5678901,-;Memory cgroup out of memory: Killed process 77 (python)\n4,1235,5678902,-;x\n",
    b"Nov 29 14:29:01 node7 kernel: [ 12.5] Killed process 77\nNov 29 14:29:02 node7 kernel: x\n",
    b"2026-11-29T14:29:01+0100 node7 kernel: Killed process 77\n2026-11-29T14:29:01+0100 node7 kernel: x\n",
    b"[Sun Nov 29 14:29:01 2026] Out of memory: Killed process 77 (python)\n",
    b"kern  :err   : [   12.345678] Out of memory: Killed process 77 (python)\n",
    b"<6>[   12.345678] Out of memory: Killed process 77 (python)\n",
]


def test_kernel_logs_are_none() -> None:
    for log in KERNEL_LOGS:
        assert not looks_like_launcher_log(log), log


def test_documents_and_binaries_are_none() -> None:
    for head in (
        b"",
        b"\n \n",
        b'{"schema": "ftforensics.crash/1",\n',
        b' [ {"Id": "x"} ]',
        b'["a"]',
        b"\x7fELF\x02\x01\x01\0\0",
        b"\x1f\x8b\x08\0\0\0",
        b"\0" * 4096,
        bytes(range(256)) * 16,
        "plain text in UTF-16".encode("utf-16"),
    ):
        assert not looks_like_launcher_log(head), head[:20]


def test_plain_text_of_a_job_is_one() -> None:
    for head in (
        b"step 1 loss 0.5\n",
        b"[2026-11-29 14:29:35,150] [WARNING] [runner.py:214:fetch_hostfile] x\n",
        b"[rank0]: Traceback (most recent call last):\n",
        b"\x1b[36m(train pid=1)\x1b[0m step\n",
        b"\x1b]0;train\x07\x1b[31mstep\x1b[0m\n" * 9,
        "第 3 步\n".encode(),
        "Größe".encode("latin-1") + b" of the batch: 3, and much more of plain text here\n",
        b"\r 10%|#  | 1/10",
        b'{"log":"step 1\\n","stream":"stdout","time":"2026-11-29T14:29:31Z"}\n',
        b"[ 8421.1] a kernel line quoted\nand a job's line\nand another\n",
    ):
        assert looks_like_launcher_log(head), head


def test_an_exception_in_the_middle_of_a_progress_bar() -> None:
    log = (
        b"\r 10%|#   | 1/10 [00:01<00:09]Traceback (most recent call last):\n"
        b'  File "a.py", line 3, in f\n    x()\nValueError: bad\n'
    )
    (event,) = read_launcher_log(log).events
    assert isinstance(event, ExceptionSeen)
    assert (event.type, event.message, event.file_line, event.line.number) == ("ValueError", "bad", 3, 4)

"""Logs that were made to be dear, or that came to harm on their way."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftforensics.model.launcher import AttemptBegan, ExceptionSeen, LauncherEvent, ProcessDied
from ftforensics.parsers.launcher import looks_like_launcher_log, read_launcher_log
from ftforensics.parsers.notices import read_notices

FOLDER = Path(__file__).parent / "fixtures"
LOGS = sorted([*(FOLDER / "launcher").glob("*.log"), *(FOLDER / "torchrun").glob("*.log")])

SHAPES = [
    "[rank3]:\n", "{\n", '{"a":1}\n', '{"message":"Killed"}\n', '{"log":"Killed\\n"}\n', "Killed\n", "[1]  Killed\n",
    "Traceback (most recent call last):\n", "[rank3]: Traceback (most recent call last):\n", "exitcode\n",
    "[rank{n}]: Traceback (most recent call last):\n", "p{n} Traceback (most recent call last):\n",
    "RuntimeError     Traceback (most recent call last)\n", "  + Exception Group Traceback (most recent call last):\n",
    "[rank{n}]: Traceback (most recent call last):\n[rank{n}]:   x\n[rank{n}]: E.x:\n",
    "Traceback (most recent call last):\n  x\nRuntimeError: NCCL error in: x\n", '  File "a", line 3\n',
    "failed (exitcode: -9) local_rank: 0 (pid: {n}) of binary: p\n", "Failures:\n  exitcode  : -9 (pid: {n})\n",
    "E0101 00:00:00.0 {n} failed (exitcode: -9) local_rank: 0 (pid: {n}) of binary: p\n", "restart_count={n}\n",
    "  rank      : {n} (local_rank: 1)\n  exitcode  : -9 (pid: {n})\n", "============\n", "\x1b[0m\n", "\0\n", "\n",
    "[rank{n}]: terminate called after throwing an instance of 'X'\n", "(): \n", "corrupted \n", "CUDA error\n",
    "[CUDA ERROR] at file x:1:\n", "[rank{n}]: [CUDA ERROR] at file x:1:\n", "srun: error: n1: tasks 0-7: Killed\n",
    "srun: \n", "CANCELLED AT\n", "Ray killed \n", "PID 4 RUNNING AT n1\n", "noticed that process rank \n", "nnodes=\n",
    "process {n} spawned with command: [{n}]\n", "The exit codes of the workers are {{{n}(1)}}\n",
    "During handling of the above exception, another exception occurred:\n", "[rank{n}]: Exception ignored in\n",
]  # fmt: skip


def made(form: str, size: int, end: str) -> bytes:
    lines = []
    written = number = 0
    while written < size:
        number += 1
        lines.append(form.replace("{n}", str(number)).replace("\n", end))
        written += len(lines[-1])
    return "".join(lines).encode()


def spent(data: bytes) -> float:
    began = time.process_time()
    read_launcher_log(data)
    read_notices(data)
    return time.process_time() - began


@pytest.mark.parametrize("end", ["\n", "\r"], ids=["lines", "carriage returns"])
@pytest.mark.parametrize("form", SHAPES)
def test_the_cost_grows_with_the_size_and_no_faster(form: str, end: str) -> None:
    """A log of nothing else, and one four times as long."""
    small = max(0.004, min(spent(made(form, 1 << 14, end)) for _ in range(3)))
    large = min(spent(made(form, 1 << 16, end)) for _ in range(2))
    assert large < 12 * small, (large, small)


def test_memory_is_bounded_with_anything_open() -> None:
    def pieces(form: str) -> Iterator[bytes]:
        for start in range(0, 5000, 1000):
            yield "".join(form.replace("{n}", str(start + one)) for one in range(1000)).encode()

    for form in (
        "[rank{n}]: Traceback (most recent call last):\r",
        "p{n} Traceback (most recent call last):\n",
        "[rank{n}]: terminate called after throwing an instance of 'X'\r",
        "[rank{n}]: Traceback (most recent call last):\r[rank{n}]:   x\r[rank{n}]: E.x:\r",
        "process 1 spawned with command: [{n}" + "x" * 300 + "]\n",
        "E0101 00:00:00.0 {n} failed (exitcode: -9) local_rank: 0 (pid: {n}) of binary: p\n",
    ):
        tracemalloc.start()
        read_launcher_log(pieces(form))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 24 << 20, (form, peak)


def test_a_summary_of_thousands_of_ranks() -> None:
    block = (
        "[{rank}]:\n  time      : 2026-11-29_13:59:50\n  host      : n{node}\n"
        "  rank      : {rank} (local_rank: {local})\n  exitcode  : -9 (pid: {pid})\n"
        "  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received\n"
    )
    blocks = [block.format(rank=rank, node=rank // 8, local=rank % 8, pid=rank + 100) for rank in range(4090)]
    text = f"Failures:\n{''.join(blocks[1:])}Root Cause (first observed failure):\n{blocks[0]}"
    began = time.process_time()
    died = [one for one in read_launcher_log(text.encode()).events if isinstance(one, ProcessDied)]
    assert time.process_time() - began < 3.0
    assert [one.rank for one in died] == [*range(1, 4090), 0]
    assert [one.first for one in died] == [False] * 4089 + [True]


def plain(log: bytes) -> list[LauncherEvent]:
    return read_launcher_log(log).events


@pytest.mark.parametrize("path", LOGS, ids=[log.stem for log in LOGS])
def test_control_characters_between_lines(path: Path) -> None:
    log = path.read_bytes()
    noisy = log.replace(b"\n", b"\n\x07\x1b[2K\x08\0\x0c\n")
    assert [type(one) for one in plain(noisy)] == [type(one) for one in plain(log)]
    assert plain(log.replace(b"\n", b"\r\n")) == plain(log)


@pytest.mark.parametrize("path", LOGS, ids=[log.stem for log in LOGS])
def test_utf16_is_no_log_and_no_event(path: Path) -> None:
    log = path.read_text(encoding="utf-8")
    for encoding in ("utf-16", "utf-16-be", "utf-32"):
        assert plain(log.encode(encoding)) == []
        assert not looks_like_launcher_log(log.encode(encoding)[:4096])


def test_names_with_escape_codes() -> None:
    """A command's name is whatever its maker likes; colours and titles go, the rest is escaped where it is shown."""
    text = "train.sh: line 3:    77 Killed                  \x1b]0;owned\x07\x1b[2Jpython \u202e\x9b31m x\n"
    (event,) = plain(text.encode())
    assert isinstance(event, ProcessDied)
    assert (event.pid, event.signal) == (77, 9)
    assert event.command is not None
    assert "\x1b" not in event.command
    assert "\x1b" not in event.line.text


def test_numbers_that_are_none() -> None:
    for text in (
        "failed (exitcode: -99999999999) local_rank: 0 (pid: 1) of binary: p",
        "failed (exitcode: -9) local_rank: 0 (pid: 99999999999999999999) of binary: p",
        "failed (exitcode: -٩) local_rank: 0 (pid: x) of binary: p",
        "Killing subprocess -4",
        "srun: error: n1: task 4294967296000: Killed",
        "[rank99999999999]: Traceback (most recent call last):",
    ):
        assert plain(f"{text}\n".encode()) == [], text


def test_deep_chains_of_labels() -> None:
    (event,) = plain(b"0: [default1]:[rank1]: Traceback (most recent call last):\n"
                     b'0: [default1]:[rank1]:   File "a.py", line 3, in f\n'
                     b"0: [default1]:[rank1]: ValueError: bad\n")  # fmt: skip
    assert isinstance(event, ExceptionSeen)
    assert (event.rank, event.message) == (1, "bad")


@pytest.mark.parametrize("path", LOGS[-6:], ids=[log.stem for log in LOGS[-6:]])
def test_cut_at_any_byte(path: Path) -> None:
    """What stands before the cut is read as in the whole log, and no start of an attempt comes of a cut."""
    log = path.read_bytes()
    whole = plain(log)
    for at in range(0, len(log), 397):
        head = plain(log[:at])
        assert _starts(head) == _starts(whole)[: len(_starts(head))]
        others = [one for one in head if not isinstance(one, AttemptBegan)]
        sure = max(0, len(others) - 2)  # what stands in the torn line may lack its end
        assert others[:sure] == [one for one in whole if not isinstance(one, AttemptBegan)][:sure]
        assert len(_starts(plain(log[at:]))) <= len(_starts(whole))


def _starts(events: list[LauncherEvent]) -> list[tuple[int, int | None]]:
    return [(one.line.number, one.restart) for one in events if isinstance(one, AttemptBegan)]

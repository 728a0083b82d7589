"""What counts as an attempt that nobody saw end."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from ftforensics.capture import procfs
from ftforensics.supervise.previous import OLDEST, previous_attempt
from synth.run_evidence import RunText


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "ftforensics"
    folder.mkdir()
    return folder


def attempt(base: Path, name: str, data: bytes, file: str = "evidence.jsonl", age: float = 0) -> Path:
    folder = base / name
    folder.mkdir(exist_ok=True)
    (folder / file).write_bytes(data)
    then = os.stat(folder).st_mtime - age
    os.utime(folder, (then, then))
    return folder


OPEN_END = RunText().started().died(7, signal=9).data()
ENDED = RunText().started().ended(code=1).data()


def test_one_without_an_end(base: Path) -> None:
    found = attempt(base, "100-5", OPEN_END)
    assert previous_attempt(str(base / "101-6")) == str(found)


def test_the_newest_of_several(base: Path) -> None:
    attempt(base, "1-1", OPEN_END, age=500)
    newer = attempt(base, "2-2", OPEN_END, age=100)
    attempt(base, "3-3", ENDED)
    assert previous_attempt(str(base / "9-9")) == str(newer)


@pytest.mark.parametrize(
    ("data", "more"),
    [(ENDED, ()), (OPEN_END, ("report.json",)), (b"", ()), (RunText().started().data() * 2000 + ENDED, ())],
    ids=["ended", "judged", "empty", "long"],
)
def test_these_are_none(base: Path, data: bytes, more: tuple[str, ...]) -> None:
    folder = attempt(base, "1-1", data)
    for name in more:
        (folder / name).write_text("{}")
    assert previous_attempt(str(base / "9-9")) is None


def test_a_running_one_is_none(base: Path) -> None:
    folder = attempt(base, "1-1", OPEN_END)
    with open(folder / "evidence.jsonl", "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert previous_attempt(str(base / "9-9")) is None
    assert previous_attempt(str(base / "9-9")) == str(folder)


def test_history_is_none(base: Path) -> None:
    attempt(base, "1-1", OPEN_END, age=OLDEST + 60)
    assert previous_attempt(str(base / "9-9")) is None


def test_a_ring_whose_process_is_gone(base: Path) -> None:
    host = os.uname().nodename.partition(".")[0]
    with subprocess.Popen(["sleep", "60"]) as process:
        name = f"{host}-rank0-{process.pid}-{procfs.start_ticks(process.pid)}.ring"
        folder = attempt(base, "1-1", b"ring", name)
        assert previous_attempt(str(base / "9-9")) is None, "it lives"
        process.kill()
    assert previous_attempt(str(base / "9-9")) == str(folder)


@pytest.mark.parametrize("name", ["gpu-99-rank0-1-1.ring", "x.ring", "a-b-c.ring"])
def test_a_ring_of_which_nothing_is_known(base: Path, name: str) -> None:
    attempt(base, "1-1", b"ring", name)
    assert previous_attempt(str(base / "9-9")) is None


def test_a_folder_with_a_given_name_is_looked_into_itself(tmp_path: Path) -> None:
    folder = attempt(tmp_path, "mine", OPEN_END)
    attempt(tmp_path, "other", OPEN_END)
    assert previous_attempt(str(folder)) == str(folder)
    assert previous_attempt(str(tmp_path / "third")) is None

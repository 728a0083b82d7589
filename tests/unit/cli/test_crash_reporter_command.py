"""Ring 2 as a command: what it writes and prints, alone, refused, hung, and without its dependencies."""

from __future__ import annotations

import fcntl
import json
import os
import site
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions import ROOT, needs_py_spy
from ftforensics.wire.helper_report import HelperReport, read_helper_report

EXAMPLE = ROOT / "docs" / "example.crash.json"
STEM = "gpu-07-rank0-4242-5123050"
RUN = "import sys; from ftforensics.cli import main; sys.exit(main(['crash-reporter', *sys.argv[1:]]))"
PARKED = """
import ctypes, threading
def waits_in_a_thread(): ctypes.CDLL(None).pause()
threading.Thread(target=waits_in_a_thread, daemon=True).start()
print("ready", flush=True)
ctypes.CDLL(None).pause()
"""


@pytest.fixture
def parked() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", PARKED], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    yield process.pid
    process.kill()
    process.communicate()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record as it is when the reporter starts: `stages` and `end` are not written yet."""
    lines = EXAMPLE.read_text().splitlines(keepends=True)
    path = tmp_path / f"{STEM}.crash.json"
    path.write_text("".join(line for line in lines if not line.startswith(('"stages"', '"end"'))))
    return path


def report(record: Path, pid: int, *, python: str = sys.executable, options: tuple[str, ...] = ()) -> tuple[int, str]:
    environment = {"PATH": os.defpath, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / "src"))}
    if python != sys.executable:
        environment["PYTHONPATH"] += os.pathsep + os.pathsep.join(site.getsitepackages())
    command = [python, *options, "-c", RUN, str(record), str(pid)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def helper_of(record: Path) -> HelperReport:
    path = record.with_name(f"{STEM}.helper.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    read = read_helper_report(path.read_bytes())
    assert isinstance(read, HelperReport)
    return read


@pytest.fixture
def interpreter_with(tmp_path: Path) -> Iterator[Path]:
    """An interpreter in a folder of its own, beside which a test puts tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    yield folder


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@needs_py_spy
def test_stacks_then_five_lines(record: Path, parked: int) -> None:
    status, said = report(record, parked)
    lines = said.splitlines()
    assert status == 0 and len(lines) == 5, said
    assert all(line.startswith("ftforensics: ") for line in lines)
    assert str(record) in lines[-1]
    helper = helper_of(record)
    assert (helper.record, helper.pid, helper.gap) == (record.name, parked, None)
    assert "waits_in_a_thread" in {frame.function for thread in helper.threads for frame in thread.frames}
    assert helper.ms and helper.ms > 0
    assert sorted(path.name for path in record.parent.iterdir()) == sorted(
        [".reporter.lock", record.name, f"{STEM}.helper.json"]
    )


def test_one_at_a_time(record: Path, parked: int) -> None:
    with open(record.parent / ".reporter.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert report(record, parked) == (0, "")
    assert not record.with_name(f"{STEM}.helper.json").exists()


def test_a_tool_that_hangs_delays_and_does_not_prevent(record: Path, parked: int, interpreter_with: Path) -> None:
    for name in ("py-spy", "pystack"):
        tool(interpreter_with, name, "exec sleep 60")
    start = time.monotonic()
    status, said = report(record, parked, python=str(interpreter_with / "python"))
    assert time.monotonic() - start < 8
    assert status == 0 and len(said.splitlines()) == 5, said
    gap = helper_of(record).gap
    assert gap and "py-spy: no answer within" in gap.why and "pystack: no answer within" in gap.why


def test_no_tool(record: Path, parked: int, interpreter_with: Path) -> None:
    status, said = report(record, parked, python=str(interpreter_with / "python"))
    assert status == 0 and len(said.splitlines()) == 5, said
    gap = helper_of(record).gap
    assert gap and gap.grant == "pip install 'ftforensics[hang]'"


def test_a_report_that_is_there_is_kept(record: Path, parked: int) -> None:
    there = record.with_name(f"{STEM}.helper.json")
    there.write_text("somebody's")
    status, said = report(record, parked)
    assert status == 0 and len(said.splitlines()) == 5, said
    assert there.read_text() == "somebody's"


def test_a_link_is_not_followed(record: Path, parked: int, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    record.with_name(f"{STEM}.helper.json").symlink_to(target)
    record.with_name(f"{STEM}.helper.json.unfinished").symlink_to(target)
    report(record, parked)
    assert not target.exists()


@pytest.mark.parametrize(
    "content", ["", '{"schema": "ftforensics.crash/1",\n"sig', "\0" * 100, '{"schema": "other/9"}']
)
def test_a_record_that_explains_nothing_still_has_its_path_told(record: Path, parked: int, content: str) -> None:
    record.write_text(content)
    _, said = report(record, parked)
    assert str(record) in said


def test_a_record_in_a_folder_that_is_gone(record: Path, parked: int) -> None:
    missing = record.parent / "gone" / record.name
    status, said = report(missing, parked)
    assert status == 1
    assert str(missing) in said and len(said.splitlines()) == 1


def test_without_its_dependencies_it_tells_where_the_record_lies(record: Path, parked: int) -> None:
    status, said = report(record, parked, options=("-S",))
    assert status == 1
    assert str(record) in said and "is missing in this environment" in said and len(said.splitlines()) == 1


def test_an_analysis_that_hangs_is_cut_and_the_record_told(record: Path, parked: int) -> None:
    """Before the handler loses its patience and kills the reporter, with nothing said."""
    hang = (
        "import sys, time; from ftforensics.cli import crash_reporter as it; it.DEADLINE = 0.2; "
        "it.write_helper_report = lambda *_: None; it.verdict = lambda *_: time.sleep(60); "
        "sys.exit(it.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", hang, str(record), str(parked)],
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1
    assert str(record) in done.stderr and "not finished within 0.2 s" in done.stderr


def test_a_closed_stderr(record: Path, parked: int) -> None:
    environment = {"PATH": os.defpath, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / "src"))}
    command = 'exec "$0" -c "$1" "$2" "$3" 2>&-'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, RUN, str(record), str(parked)], env=environment, timeout=30
    )
    assert done.returncode == 0
    assert json.loads(record.with_name(f"{STEM}.helper.json").read_text())["pid"] == parked
    assert (record.parent / ".reporter.lock").read_bytes() == b""  # which would have been fd 2


@pytest.mark.parametrize("arguments", [[], ["x"], ["record", "pid"], ["a", "1", "b"]])
def test_wrong_arguments(arguments: list[str]) -> None:
    environment = {"PATH": os.defpath, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / "src"))}
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1

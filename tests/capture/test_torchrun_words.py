"""The verdict on a rank that crashes, in the file in which torchrun looks for its last words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import Jobs

RANK = """
import ftforensics; ftforensics.install()
import ctypes, os, subprocess, sys
{before}
ctypes.string_at(0)
"""
ALONE = "pass"
FORKED = "pid = os.fork()\nif pid: os.waitpid(pid, 0); sys.exit(5)"
STARTED = "if len(sys.argv) == 1: subprocess.run([sys.executable, *sys.orig_argv[1:], 'again']); sys.exit(5)"


def last_words(jobs: Jobs, before: str, there: str = "", **environment: str) -> tuple[int, Path, Path]:
    """(exit status of the rank, the file, the run folder)."""
    cwd = jobs.fresh()
    file = cwd / "attempt_0" / "1" / "error.json"
    file.parent.mkdir(parents=True)
    if there:
        file.write_text(there)
    variables = {"RANK": "1", "TORCHELASTIC_ERROR_FILE": str(file), "FTFORENSICS_DIR": str(cwd / "folder")}
    done = subprocess.run(
        [sys.executable, "-c", RANK.format(before=before)],
        cwd=cwd,
        env=jobs.environment({**variables, **environment}),
        capture_output=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, file, cwd / "folder"


def test_a_crash_has_its_verdict_and_stack(jobs: Jobs) -> None:
    status, file, folder = last_words(jobs, ALONE)
    assert status == -signal.SIGSEGV
    message = json.loads(file.read_bytes().decode("ascii"))["message"]
    line = f"ftforensics: rank 1 died of SIGSEGV, native-fault (likely); ftforensics analyze {folder}"
    assert message["message"] == line
    first, *stack = message["extraInfo"]["py_callstack"].splitlines()
    assert first == line
    assert any(frame.startswith("  at string_at (ctypes/__init__.py:") for frame in stack) and len(stack) <= 12
    (record,) = folder.glob("*.crash.json")
    crashed = json.loads(record.read_text())["time"]["realtime"]
    assert int(message["extraInfo"]["timestamp"]) == int(crashed)  # of the crash, not of the writing
    assert os.listdir(file.parent) == ["error.json"]


@pytest.mark.parametrize("before", [FORKED, STARTED], ids=["forked", "started"])
def test_a_crash_of_a_ranks_child_is_not_the_ranks(jobs: Jobs, before: str) -> None:
    status, file, folder = last_words(jobs, before)
    assert status == 5
    assert list(folder.glob("*.crash.json")), "it has not crashed"
    assert os.listdir(file.parent) == []


def test_what_is_there_is_left_alone(jobs: Jobs) -> None:
    assert last_words(jobs, ALONE, there="{}")[1].read_text() == "{}"


def test_switched_off(jobs: Jobs) -> None:
    status, file, folder = last_words(jobs, ALONE, FTFORENSICS_TORCHRUN_SUMMARY="0")
    assert status == -signal.SIGSEGV and list(folder.glob("*.helper.json"))
    assert os.listdir(file.parent) == []

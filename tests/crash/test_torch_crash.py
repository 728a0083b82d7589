"""Crashes inside the real torch: its frames are named, and torch's own handling of a dead worker or rank stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import analyze, one_record
from conditions import needs_torch
from harness import PROGRAMS, ROOT, Workplace, decode

pytestmark = [needs_torch, pytest.mark.torch, pytest.mark.timeout(240)]


def run(
    how: str, watch: str, place: Workplace, launcher: tuple[str, ...] = ()
) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = place.fresh()
    words = [sys.executable, *launcher, str(PROGRAMS / "die_torch.py"), "--how", how, "--watch", watch]
    words += ["--dir", str(folder / "records"), "--build", str(place.build)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(words, cwd=folder / "tmp", env=environment, capture_output=True, text=True, timeout=200)
    return done, folder / "records"


def facts(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for line in done.stdout.splitlines():
        if "{" in line:  # torchrun may put a rank before it
            found.update(json.loads(line[line.index("{") :]))
    return found


def test_crash_in_libtorch(place: Workplace) -> None:
    done, folder = run("libtorch", "ours", place)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    path = one_record(folder)
    record = decode(path)
    assert record.process is not None and record.process.pid == facts(done)["pid"]
    assert record.python is not None and "in train_step" in (record.python.text or "")
    diagnosis = analyze(path)
    assert diagnosis.verdict.mechanism == "wild-read"
    stack = diagnosis.processes[0].stack
    named = [frame for frame in stack if (frame.library or "").endswith("libtorch_cpu.so") and frame.function]
    assert any("at::" in (frame.function or "") for frame in named), stack
    assert [f for f in stack if f.python and f.function == "train_step" and (f.file or "").endswith("die_torch.py")]


def test_dataloader_worker(place: Workplace) -> None:
    """torch installs its own handlers in workers, after ours."""
    without, _ = run("worker", "none", place)
    done, folder = run("worker", "ours", place)
    assert done.returncode == without.returncode == 7, done.stderr
    # Who looks first, the signal handler, the queue or the reader of the worker's socket, has the word.
    assert str(facts(done)["error"]).startswith(("RuntimeError: DataLoader worker", "EOFError", "Connection"))
    told = "Unexpected segmentation fault encountered in worker"
    assert done.stderr.count(told) == without.stderr.count(told) == 1
    path = one_record(folder)
    record = decode(path)
    assert record.process is not None and record.process.pid == facts(done)["dying_pid"]
    assert record.process.fork_of is not None
    assert record.python is not None and "in read_broken_shard" in (record.python.text or "")


def test_torchrun_record(place: Workplace) -> None:
    """@record calls faulthandler.enable(all_threads=True) after our install."""
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    done, folder = run("record", "ours", place, launcher)
    assert done.returncode == 1
    root_cause = done.stderr[done.stderr.index("Root Cause") :]
    assert "exitcode  : -11" in root_cause and f"(pid: {facts(done)['pid']})" in root_cause
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1
    path = one_record(folder)
    record = decode(path)
    assert record.process is not None and record.process.pid == facts(done)["pid"]
    assert record.job is not None and record.job.rank == 1
    assert record.python is not None and "in train_step" in (record.python.text or "")

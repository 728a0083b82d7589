"""Py_FatalError takes CPython's dumper down before it aborts; the Python stack is in the record all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

from conditions import Interpreter
from harness import ROOT, Workplace

PROGRAM = """
import ctypes, sys
import ftforensics
ftforensics.install(dir=sys.argv[1], helper="none")
def gives_up():
    eval(sys.argv[2]).Py_FatalError(b"on purpose")
gives_up()
"""


def give_up(place: Workplace, python: Interpreter, library: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    folder = place.fresh() / "records"
    done = subprocess.run(
        [str(python.path), "-c", PROGRAM, str(folder), library],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert "Fatal Python error: on purpose" in done.stderr
    (path,) = folder.glob("*.crash.json")
    return done, json.loads(path.read_text())


def test_the_python_stack_survives_a_fatal_error(place: Workplace, python: Interpreter) -> None:
    done, record = give_up(place, python, "ctypes.pythonapi")
    assert done.returncode == -signal.SIGABRT
    assert "in gives_up" in record["python"]["text"]
    assert {stage["name"]: stage["ok"] for stage in record["stages"]}["python_frames"]


def test_without_the_gil_it_still_ends_by_abort(place: Workplace, python: Interpreter) -> None:
    """On 3.12 and 3.13 the clean-up frees what faulthandler.register() had allocated, and that needs the GIL."""
    done, record = give_up(place, python, "ctypes.CDLL(None)")
    assert done.returncode == -signal.SIGABRT
    assert record["end"]["how"] == ("abort" if record["signal"]["name"] == "SIGSEGV" else "requeue")

"""Py_FatalError takes CPython's dumper down before it aborts; the Python stack is in the record all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from conditions import Interpreter
from harness import ROOT, Workplace

PROGRAM = """
import ctypes, sys
import ftforensics
ftforensics.install(dir=sys.argv[1], helper="none")
def gives_up():
    ctypes.pythonapi.Py_FatalError(b"on purpose")
gives_up()
"""


def test_the_python_stack_survives_a_fatal_error(place: Workplace, python: Interpreter) -> None:
    folder = place.fresh() / "records"
    done = subprocess.run(
        [str(python.path), "-c", PROGRAM, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGABRT
    assert "Fatal Python error: on purpose" in done.stderr
    (path,) = folder.glob("*.crash.json")
    record = json.loads(path.read_text())
    assert "in gives_up" in record["python"]["text"]
    assert {stage["name"]: stage["ok"] for stage in record["stages"]}["python_frames"]

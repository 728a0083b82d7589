"""The user's home is on a mount whose server went away: neither the job nor `run` waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conditions import ROOT, Interpreter, needs_fuse
from hung_mount import beside
from inventory_wait import WAIT

pytestmark = needs_fuse

RUN = (sys.executable, "-m", "ftforensics", "run", "--quiet", "--")


def ran(folder: Path, command: list[str], said: bytes = b"") -> tuple[int, float]:
    """(exit status, seconds) with every folder of the user's own on such a mount."""
    home = folder / "home"
    home.mkdir()
    # Without the first of these Python itself looks into the home, and waits.
    variables = {"PYTHONNOUSERSITE": "1", "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    begun = time.monotonic()
    done = subprocess.run(
        beside("hung", home, command), cwd=folder, env={**variables, "HOME": str(home)}, capture_output=True, timeout=80
    )
    assert b"it hangs" not in done.stderr
    assert said in done.stderr
    return done.returncode, time.monotonic() - begun


@pytest.mark.parametrize("end", ["sys.exit(3)", "os._exit(3)"])
def test_a_jobs_end_does_not_wait_for_its_ledger(end: str, python: Interpreter, tmp_path: Path) -> None:
    code = f"import sys, ftforensics; ftforensics.install()\n{WAIT}\nwait_for_inventory(); {end}"
    status, seconds = ran(tmp_path, [python.path, "-c", code])
    assert (status, seconds < 15) == (3, True)


def test_run_does_not_wait_for_its_ledger(tmp_path: Path) -> None:
    status, seconds = ran(tmp_path, [*RUN, "sh", "-c", "sleep 2.1; exit 3"])
    assert (status, seconds < 25) == (3, True)


def test_a_crash_is_judged_all_the_same(tmp_path: Path) -> None:
    command = [RUN[0], "-m", "ftforensics", "run", "--", RUN[0], "-c", "import ctypes; ctypes.string_at(0)"]
    status, _ = ran(tmp_path, command, b"SIGSEGV in a ctypes call")
    assert status == 128 + 11

"""What importing and installing loads and costs inside the job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conditions import ROOT, Interpreter
from jobs import Jobs

# Everything that install() may load besides ourselves; each is small, or built into the interpreter.
LIGHT = {"__future__", "atexit", "errno", "faulthandler"}


def test_only_light_modules_are_loaded(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import os, sys  # -S leaves even os to the program
        sys.path.insert(0, {str(ROOT / "src")!r})
        before = set(sys.modules)
        import ftforensics
        ftforensics.install(helper="auto")
        with ftforensics.phase("a"):
            ftforensics.step(1)
        ftforensics.note("b")
        print("\\n".join(sorted(set(sys.modules) - before)))
        """
    # -S: site hooks of a machine (certificates, debuggers) load what they like before us
    done = jobs.run(python, code, install=None, flags=("-I", "-S"))
    assert done.err == ""
    loaded = {name for name in done.out.split() if name.partition(".")[0] != "ftforensics"}
    assert loaded <= LIGHT
    ours = {name for name in done.out.split() if name.startswith("ftforensics.")}
    assert all(name.startswith(("ftforensics.capture", "ftforensics._native")) for name in ours)


def test_importtime_lists_nothing_else(python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, "import os", flags=("-I", "-S", "-X", "importtime"), install=None)
    bare = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import ftforensics; ftforensics.install()"
    done = jobs.run(python, code, flags=("-I", "-S", "-X", "importtime"), install=None)
    ours = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    assert {name for name in ours - bare if not name.startswith("ftforensics")} <= LIGHT


@pytest.mark.parametrize("module", ["ftforensics.capture.session"])
def test_capture_compiles_without_warnings(module: str, python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, f"import {module}", install=None, flags=("-W", "error", "-X", "dev"))
    assert (done.status, done.err) == (0, "")


def test_the_benchmark_prints_for_people(jobs: Jobs) -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "install.py"), "--runs", "9"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert made.returncode in (0, 1), made.stderr  # 1: over the limit, as it may be beside other tests
    assert "faulthandler" in made.stdout and "load" in made.stdout
    assert Path(ROOT / "benchmarks" / "install.py").exists()

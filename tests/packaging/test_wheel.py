"""The wheel that is shipped, used as a training image uses it: no compiler, no dependencies, each Python."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from build_wheel import build_wheel
from conditions import PYTHONS, Interpreter

CRASH = """
import ctypes, sys
import ftforensics

ftforensics.install()
with ftforensics.phase("train"):
    ftforensics.step(7)
    ctypes.memset(16, 0, 8)
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, also when several workers run these tests."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    with open(shared / "wheel-lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        built = sorted((shared / "wheel").glob("*.whl"))
        return built[0] if built else build_wheel(shared / "wheel")


def environment(folder: Path, python: Interpreter, *requirements: str) -> Path:
    """A virtual environment with `requirements`; its interpreter."""
    subprocess.run([python.path, "-m", "venv", str(folder)], check=True)
    made = folder / "bin" / "python"
    # Nothing may be compiled on the user's machine.
    no_compiler = {**os.environ, "CC": "/bin/false", "CXX": "/bin/false", "PYTHONPATH": ""}
    subprocess.run(
        [str(made), "-m", "pip", "--disable-pip-version-check", "-q", "install", *requirements],
        check=True,
        env=no_compiler,
    )
    return made


def crash(python: Path, folder: Path) -> Path:
    """Run the crash with `python`, check that it died of it, return the record."""
    runs = folder / "runs"
    ended = subprocess.run(
        [str(python), "-c", CRASH],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "FTFORENSICS_DIR": str(runs)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == -signal.SIGSEGV, ended.stderr
    (record,) = runs.glob("*.crash.json")
    return record


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    assert "-cp310-abi3-manylinux" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {"ftforensics/_native.abi3.so", "ftforensics/py.typed", "ftforensics/_native.pyi"} <= set(names)
    assert [name for name in names if not name.startswith(("ftforensics/", "ftforensics-"))] == []
    assert [name for name in names if name.endswith((".c", ".h"))] == []


@pytest.mark.parametrize("python", PYTHONS, ids=str)
@pytest.mark.timeout(300)
def test_a_crash_is_recorded_without_compiler_and_dependencies(
    wheel: Path, python: Interpreter, tmp_path: Path
) -> None:
    made = environment(tmp_path / "venv", python, "--no-deps", "--no-index", str(wheel))
    record = json.loads(crash(made, tmp_path).read_text())
    assert record["signal"]["name"] == "SIGSEGV"
    assert record["step"] == 7
    assert record["phase"]["names"] == ["train"]
    assert record["native"]["frames"]
    assert "<module>" in record["python"]["text"] or "<string>" in record["python"]["text"]


@pytest.mark.timeout(300)
def test_the_command_without_its_dependencies_says_one_clear_line(wheel: Path, tmp_path: Path) -> None:
    """Capture works with --no-deps; the analyser then lives elsewhere, and the command says so."""
    made = environment(tmp_path / "venv", PYTHONS[-1], "--no-deps", "--no-index", str(wheel))
    ended = subprocess.run(
        [str(made.parent / "ftforensics"), "analyze", "."], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("ftforensics: ")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.timeout(600)
def test_the_installed_command_explains_the_crash(wheel: Path, tmp_path: Path) -> None:
    own = Interpreter(sys.version_info[:2], getattr(sys, "_base_executable", sys.executable))
    made = environment(tmp_path / "venv", own, str(wheel))
    record = crash(made, tmp_path)
    ended = subprocess.run(
        [str(made.parent / "ftforensics"), "analyze", "--json", str(record)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["schema"] == "ftforensics.report/1"
    assert report["verdict"]["mechanism"] == "null-write"

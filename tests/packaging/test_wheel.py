"""The wheel that is shipped, used as a training image uses it: no compiler, no dependencies, each Python."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from build_wheel import build_wheel
from conditions import PYTHONS, ROOT, Interpreter

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
    # What `run` needs inside a job: the line that Python executes at its start, the library to preload.
    assert {"ftforensics-run.pth", "ftforensics/_preload.abi3.so"} <= set(names)
    tables = {f"ftforensics/facts/data/{path.name}" for path in (ROOT / "src/ftforensics/facts/data").iterdir()}
    assert tables and tables <= set(names)
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


ASKED = {"FTFORENSICS_RUN": "1"}


@pytest.mark.timeout(300)
def test_the_installed_start_file_captures_only_when_asked(wheel: Path, tmp_path: Path) -> None:
    made = environment(tmp_path / "venv", PYTHONS[0], "--no-deps", "--no-index", str(wheel))
    code = "import ctypes, sys; print('ftforensics' in sys.modules, flush=True); ctypes.memset(16, 0, 8)"
    for asked, seen in ((ASKED, "True\n"), ({}, "False\n")):
        runs = tmp_path / f"runs{len(asked)}"
        ended = subprocess.run(
            [str(made), "-c", code],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FTFORENSICS_DIR": str(runs), **asked},
            capture_output=True,
            text=True,
        )
        assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, seen)
        assert len(list(runs.glob("*.crash.json"))) == len(asked)


@pytest.mark.timeout(300)
def test_pip_takes_the_start_file_away_again(wheel: Path, tmp_path: Path) -> None:
    made = environment(tmp_path / "venv", PYTHONS[0], "--no-deps", "--no-index", str(wheel))
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    assert (packages / "ftforensics-run.pth").exists()
    uninstall = [str(made), "-m", "pip", "-q", "uninstall", "-y", "ftforensics"]
    subprocess.run(uninstall, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""})
    assert [path.name for path in packages.glob("ftforensics*")] == []


@pytest.mark.timeout(300)
def test_editable_and_source_distributions_have_it_too(tmp_path: Path) -> None:
    """In a copy of the tree: an editable build leaves its libraries in the sources."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    for name in ("src", "csrc"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    code = "import setuptools.build_meta as build; build.build_editable('out'); build.build_sdist('out')"
    (copy / "out").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    (editable,) = (copy / "out").glob("*.whl")
    names = zipfile.ZipFile(editable).namelist()
    # In this order, which is the one in which site reads them: the line needs the path.
    paths = sorted(name for name in names if name.endswith(".pth"))
    assert len(paths) == 2 and paths[-1] == "ftforensics-run.pth"
    (packed,) = (copy / "out").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/ftforensics-run.pth", "csrc/preload/ftf_preload.c", "csrc/ftf_altstack.c"} <= inside


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

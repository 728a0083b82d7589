"""The inventory of real processes: NVIDIA's wheels loaded without a GPU, two copies of one library, the real torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conditions import ROOT, needs_torch, needs_x86_64

WHEELS = {
    "old": "nvidia-cuda-runtime-cu12==12.1.105",
    "new": "nvidia-cuda-runtime-cu12==12.8.90",
    "linker": "nvidia-nvjitlink-cu12==12.8.93",
}
CUDART = "nvidia/cuda_runtime/lib/libcudart.so.12"
NVJITLINK = "nvidia/nvjitlink/lib/libnvJitLink.so.12"
LOAD = "import ctypes, sys; kept = [ctypes.CDLL(path) for path in sys.argv[1:]]; print('ready', flush=True); input()"
RUN = "import sys; from ftforensics.cli import main; sys.exit(main(['inventory', *sys.argv[1:]]))"

pytestmark = needs_x86_64


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of WHEELS in a folder of its own, as `pip install --target` leaves it."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, requirement in WHEELS.items():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder / name), requirement]
        subprocess.run(pip, check=True, timeout=100)
    return folder


@contextmanager
def process(*command: str) -> Iterator[int]:
    child = subprocess.Popen([sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout and child.stdout.readline() == "ready\n"
        yield child.pid
    finally:
        child.communicate("\n")


def inventory(pid: int, cache: Path) -> dict[str, Any]:
    """The members that the command printed, read as the C side writes them: whole lines inside a record."""
    environment = dict(os.environ, XDG_CACHE_HOME=str(cache))
    environment.setdefault("PYTHONPATH", str(ROOT / "src"))
    done = subprocess.run([sys.executable, "-c", RUN, str(pid)], env=environment, capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    lines = done.stdout.splitlines(keepends=True)
    assert [line[:9] for line in lines] == [b'"librarie', b'"driver":'] and all(line.endswith(b",\n") for line in lines)
    members: dict[str, Any] = json.loads(b"{" + done.stdout + b'"end": null}')
    return members


def by_kind(members: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [library for library in members["libraries"] if library["kind"] == kind]


def test_two_runtimes_in_one_process(wheels: Path, tmp_path: Path) -> None:
    paths = [str(wheels / name / CUDART) for name in ("old", "new")]
    with process(LOAD, *paths) as pid:
        found = by_kind(inventory(pid, tmp_path), "libcudart")
    assert {library["path"]: library["version"] for library in found} == {
        paths[0]: "12.1.105",
        paths[1]: "12.8.90",
    }
    for library in found:
        assert (library["package"], library["how"]) == ("nvidia-cuda-runtime-cu12", "record")
        assert (library["origin"], library["copies"], library["drifted"]) == ("wheel", 2, None)
    assert found[0]["build_id"] != found[1]["build_id"]


def test_nvjitlink_by_record_and_by_itself(wheels: Path, tmp_path: Path) -> None:
    installed = wheels / "linker" / NVJITLINK
    stray = tmp_path / "stray" / "libnvJitLink.so.12"
    stray.parent.mkdir()
    shutil.copy(installed, stray)
    with process(LOAD, str(installed), str(stray)) as pid:
        first, second = sorted(by_kind(inventory(pid, tmp_path), "libnvJitLink"), key=lambda found: found["how"])
    assert (first["version"], first["how"], first["package"]) == ("12.8.93", "record", "nvidia-nvjitlink-cu12")
    assert (second["version"], second["how"], second["package"]) == ("12.8", "symbol", None)
    assert (first["copies"], second["copies"], second["origin"]) == (2, 2, "other")


def test_upgraded_under_a_running_job(wheels: Path, tmp_path: Path) -> None:
    """pip replaces the file of a library that is loaded: what lies there now is not what runs."""
    site = tmp_path / "site"
    shutil.copytree(wheels / "old", site)
    with process(LOAD, str(site / CUDART)) as pid:
        shutil.rmtree(site)
        shutil.copytree(wheels / "new", site)
        (library,) = by_kind(inventory(pid, tmp_path), "libcudart")
    assert (library["version"], library["package"], library["build_id"]) == (None, None, None)
    assert library["drifted"] == "replaced after it was loaded"


def test_overwritten_by_another_version(wheels: Path, tmp_path: Path) -> None:
    """The file of 12.8 under the RECORD of 12.1: the version on paper is not claimed."""
    site = tmp_path / "site"
    shutil.copytree(wheels / "old", site)
    (site / CUDART).unlink()
    shutil.copy(wheels / "new" / CUDART, site / CUDART)
    with process(LOAD, str(site / CUDART)) as pid:
        (library,) = by_kind(inventory(pid, tmp_path), "libcudart")
    assert (library["version"], library["package"]) == (None, "nvidia-cuda-runtime-cu12")
    assert library["drifted"].endswith("as nvidia-cuda-runtime-cu12 12.1.105 installed it")


@needs_torch
@pytest.mark.torch
def test_the_real_torch(tmp_path: Path) -> None:
    asked = "import torch; print(torch.__version__); print('ready', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        version = child.stdout.readline().strip()
        assert child.stdout.readline() == "ready\n"
        start = time.monotonic()
        members = inventory(child.pid, tmp_path)
        assert time.monotonic() - start < 5
    finally:
        child.communicate("\n")
    for kind in ("libtorch_cpu", "libtorch_python", "libc10"):
        (library,) = by_kind(members, kind)
        assert (library["package"], library["version"], library["how"]) == ("torch", version, "record"), library
        assert (library["copies"], library["drifted"]) == (1, None)
    assert "torch" in {library["package"] for library in by_kind(members, "extension")}
    (gomp,) = [library for library in by_kind(members, "libgomp") if "/torch/" in library["path"]]
    assert (gomp["package"], gomp["version"], gomp["vendored_by"]) == (None, None, f"torch {version}")


def test_a_plain_process(tmp_path: Path) -> None:
    with process("print('ready', flush=True); input()") as pid:
        members = inventory(pid, tmp_path)
    assert members["driver"] is not None
    assert not by_kind(members, "libcudart")


def test_a_process_that_is_gone() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    environment = {"PYTHONPATH": str(ROOT / "src"), **os.environ}
    done = subprocess.run([sys.executable, "-c", RUN, str(gone.pid)], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


def test_its_complaint_never_gets_into_the_record() -> None:
    """Standard output is the record's text; without a standard error Python would print there."""
    environment = {"PYTHONPATH": str(ROOT / "src"), **os.environ}
    command = ["sh", "-c", 'exec "$0" -c "$1" 0 2>&-', sys.executable, RUN]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (1, b"")


def test_without_its_dependencies() -> None:
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / "src"))}
    command = [sys.executable, "-S", "-c", RUN, str(os.getpid())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)

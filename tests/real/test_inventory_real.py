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
from wheels import CUDART, NCCL, NVJITLINK, Unpacked

OLD, NEW = "12.1.105", "12.8.90"
LOAD = "import ctypes, sys; kept = [ctypes.CDLL(path) for path in sys.argv[1:]]; print('ready', flush=True); input()"
RUN = "import sys; from ftforensics.cli import main; sys.exit(main(['inventory', *sys.argv[1:]]))"

pytestmark = needs_x86_64


@contextmanager
def process(*command: str, **variables: str) -> Iterator[int]:
    child = subprocess.Popen(
        [sys.executable, "-c", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
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
    assert [line.split(b":")[0] for line in lines] == [b'"libraries"', b'"software"', b'"driver"']
    assert all(line.endswith(b",\n") for line in lines)
    members: dict[str, Any] = json.loads(b"{" + done.stdout + b'"end": null}')
    return members


def by_kind(members: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [library for library in members["libraries"] if library["kind"] == kind]


def test_what_torch_demands_and_what_is_loaded(torch_291: Path, tmp_path: Path) -> None:
    with process(LOAD, *(str(torch_291 / name) for name in ("torch/lib/libc10.so", CUDART, NVJITLINK))) as pid:
        members = inventory(pid, tmp_path)
    (runtime,), (linker,), (c10,) = (by_kind(members, kind) for kind in ("libcudart", "libnvJitLink", "libc10"))
    assert (runtime["version"], runtime["pin"], runtime["pinned_by"]) == ("12.8.90", "12.8.90", "torch 2.9.1")
    assert (linker["version"], linker["pin"]) == ("12.1.105", "12.8.93")
    assert (runtime["cuda"], linker["cuda"], c10["cuda"]) == ("12.8", "12", "12.8")
    software = members["software"]
    assert (software["torch"]["version"], software["torch"]["cuda"]) == ("2.9.1+cu128", "12.8")
    assert (software["site_packages"], software["python"]) == ([str(torch_291)], "3.11")
    assert {pin["package"]: (pin["version"], pin["installed"]) for pin in software["pins"]} == {
        "nvidia-cuda-runtime-cu12": ("12.8.90", "12.8.90"),
        "nvidia-nvjitlink-cu12": ("12.8.93", "12.1.105"),
        "nvidia-cudnn-cu12": ("9.10.2.21", None),
    }
    assert (software["broken"], software["verified"]) == ([], False)


def test_a_runtime_that_the_search_path_put_first(torch_291: Path, nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    """A toolkit's library folder on LD_LIBRARY_PATH: asked by its SONAME, the loader gives that one."""
    toolkit = tmp_path / "usr/local/cuda-12.1/targets/x86_64-linux/lib"
    toolkit.mkdir(parents=True)
    shutil.copy(nvidia_wheel("nvidia-cuda-runtime-cu12", "12.1.105") / CUDART, toolkit / "libcudart.so.12.1.105")
    (toolkit / "libcudart.so.12").symlink_to("libcudart.so.12.1.105")
    (tmp_path / "usr/local/cuda-12.1/lib64").symlink_to("targets/x86_64-linux/lib")
    entry = str(tmp_path / "usr/local/cuda-12.1/lib64")
    variables = {"LD_LIBRARY_PATH": f"/nowhere:{entry}", "TOKEN_OF_A_USER": "hunter2"}
    with process(LOAD, str(torch_291 / "torch/lib/libc10.so"), "libcudart.so.12", **variables) as pid:
        members = inventory(pid, tmp_path)
    (runtime,) = by_kind(members, "libcudart")
    assert (runtime["path"], runtime["searched"]) == (str(toolkit / "libcudart.so.12.1.105"), entry)
    assert (runtime["version"], runtime["how"], runtime["package"]) == ("12.1.105", "file-name", None)
    assert "hunter2" not in json.dumps(members)


@pytest.mark.timeout(700)
def test_nccl_says_which_cuda_it_was_built_with(nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    """The NCCL that torch 2.9.1 for CUDA 12.8 demands was built with 12.9: no fault."""
    path = nvidia_wheel("nvidia-nccl-cu12", "2.27.5") / NCCL
    with process(LOAD, str(path)) as pid:
        (nccl,) = by_kind(inventory(pid, tmp_path), "libnccl")
    assert (nccl["version"], nccl["how"], nccl["cuda"]) == ("2.27.5", "record", "12.9")


def test_two_runtimes_in_one_process(nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    paths = [str(nvidia_wheel("nvidia-cuda-runtime-cu12", version) / CUDART) for version in (OLD, NEW)]
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


def test_nvjitlink_by_record_and_by_itself(nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    installed = nvidia_wheel("nvidia-nvjitlink-cu12", "12.8.93") / NVJITLINK
    stray = tmp_path / "stray" / "libnvJitLink.so.12"
    stray.parent.mkdir()
    shutil.copy(installed, stray)
    with process(LOAD, str(installed), str(stray)) as pid:
        first, second = sorted(by_kind(inventory(pid, tmp_path), "libnvJitLink"), key=lambda found: found["how"])
    assert (first["version"], first["how"], first["package"]) == ("12.8.93", "record", "nvidia-nvjitlink-cu12")
    assert (second["version"], second["how"], second["package"]) == ("12.8", "symbol", None)
    assert (first["copies"], second["copies"], second["origin"]) == (2, 2, "other")


def test_upgraded_under_a_running_job(nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    """pip replaces the file of a library that is loaded: what lies there now is not what runs."""
    site = tmp_path / "site"
    shutil.copytree(nvidia_wheel("nvidia-cuda-runtime-cu12", OLD), site)
    with process(LOAD, str(site / CUDART)) as pid:
        shutil.rmtree(site)
        shutil.copytree(nvidia_wheel("nvidia-cuda-runtime-cu12", NEW), site)
        (library,) = by_kind(inventory(pid, tmp_path), "libcudart")
    assert (library["version"], library["package"], library["build_id"]) == (None, None, None)
    assert library["drifted"] == "replaced after it was loaded"


def test_overwritten_by_another_version(nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    """The file of 12.8 under the RECORD of 12.1: the version on paper is not claimed."""
    site = tmp_path / "site"
    shutil.copytree(nvidia_wheel("nvidia-cuda-runtime-cu12", OLD), site)
    (site / CUDART).unlink()
    shutil.copy(nvidia_wheel("nvidia-cuda-runtime-cu12", NEW) / CUDART, site / CUDART)
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

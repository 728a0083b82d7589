"""`ftforensics libraries` on real processes that have NVIDIA's real wheels loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conditions import ROOT, needs_torch, needs_unshare, needs_x86_64
from wheels import CUDART, NVJITLINK, Unpacked

pytestmark = needs_x86_64

LOAD = "import ctypes, sys; kept = [ctypes.CDLL(path) for path in sys.argv[1:]]; print('ready', flush=True); input()"


@contextmanager
def process(*command: str, **variables: str) -> Iterator[int]:
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}
    )
    try:
        assert child.stdout and child.stdout.readline() == "ready\n"
        yield child.pid
    finally:
        child.communicate("\n")


def libraries(*arguments: object, columns: int = 80) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "ftforensics", "libraries", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def shown(*arguments: object, columns: int = 80) -> str:
    done = libraries(*arguments, columns=columns)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= columns
    return done.stdout


def row(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.strip().startswith(start)]
    return line.split()


def test_demanded_drifted_and_not_installed(torch_291: Path) -> None:
    paths = [str(torch_291 / name) for name in ("torch/lib/libc10.so", CUDART, NVJITLINK)]
    with process(sys.executable, "-c", LOAD, *paths) as pid:
        text = shown(pid)
        answer: dict[str, Any] = json.loads(libraries(pid, "--json").stdout)
    assert "torch 2.9.1+cu128 for CUDA 12.8 (wheel)" in text
    assert row(text, "libcudart.so.12")[1:4] == ["12.8.90", "the", "same"]
    assert row(text, "libnvJitLink.so.12")[1:3] == ["12.1.105", "12.8.93"]
    assert "not the nvidia-nvjitlink-cu12 that torch 2.9.1 demands" in text
    assert "nvidia-cudnn-cu12 9.10.2.21: it is not installed" in text
    assert "nvidia-cuda-runtime-cu12 12.8.90:" not in text
    assert answer["schema"] == "ftforensics.libraries/1" and answer["pid"] == pid
    assert {one["kind"] for one in answer["libraries"]} >= {"libcudart", "libnvJitLink", "libc10"}


def test_two_copies_one_of_them_by_the_search_path(torch_291: Path, nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    toolkit = tmp_path / "cuda-12.1/lib64"
    toolkit.mkdir(parents=True)
    shutil.copy(nvidia_wheel("nvidia-cuda-runtime-cu12", "12.1.105") / CUDART, toolkit / "libcudart.so.12.1.105")
    (toolkit / "libcudart.so.12").symlink_to("libcudart.so.12.1.105")
    paths = ["libcudart.so.12", str(torch_291 / CUDART)]
    with process(sys.executable, "-c", LOAD, *paths, LD_LIBRARY_PATH=str(toolkit)) as pid:
        text = shown(pid, columns=118)
    assert row(text, "libcudart.so.12.1.105")[1] == "12.1.105"
    assert text.count("one of 2 loaded libcudart") == 2
    assert text.count("by LD_LIBRARY_PATH") == 1


def test_a_file_that_was_replaced(torch_291: Path, nvidia_wheel: Unpacked) -> None:
    with process(sys.executable, "-c", LOAD, str(torch_291 / CUDART)) as pid:
        (torch_291 / CUDART).unlink()
        shutil.copy(nvidia_wheel("nvidia-cuda-runtime-cu12", "12.1.105") / CUDART, torch_291 / CUDART)
        text = shown(pid)
    assert row(text, "libcudart.so.12")[1] == "?"
    assert "the file is not what was loaded or installed: replaced after it was loaded" in text


def test_verify_finds_the_damaged_file(torch_291: Path) -> None:
    path = torch_291 / CUDART
    with process(sys.executable, "-c", LOAD, str(torch_291 / "torch/lib/libc10.so")) as pid:
        whole = shown(pid, "--verify")
        assert "files of torch and of NVIDIA's packages are as installed" in whole
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x7f")
        assert "as installed" not in shown(pid).replace("all 2 packages", "")
        damaged = " ".join(shown(pid, "--verify").split())
    assert "nvidia-cuda-runtime-cu12 12.8.90:" in damaged and "files are as installed" in damaged


@needs_torch
@pytest.mark.torch
def test_the_real_torch() -> None:
    code = "import torch; print('ready', flush=True); input()"
    with process(sys.executable, "-c", code) as pid:
        text = shown(pid)
        wide = shown(pid, columns=200)
    assert "for the CPU (wheel)" in text
    assert row(text, "libtorch_cpu.so")[2] == "torch"
    assert "extension modules of" in text
    assert "libtorch_python.so" in wide


@needs_unshare
def test_a_process_with_a_mount_of_its_own(tmp_path: Path) -> None:
    """Its root is ours, its library lies on a file system that only it sees."""
    folder, library = tmp_path / "own", Path(_a_library())
    folder.mkdir()
    script = 'mount -t tmpfs own "$1" && cp "$2" "$1/libcudart.so.12" && exec "$3" -c "$4" "$1/libcudart.so.12"'
    command = ("unshare", "-m", "sh", "-c", script, "sh", str(folder), str(library), sys.executable, LOAD)
    with process(*command) as pid:
        text = shown(pid)
    assert "libcudart.so.12" in text and "no longer there" not in text


def _a_library() -> str:
    """Any small library that can be loaded alone."""
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if "/libc.so" in line or "/libm.so" in line)


@needs_unshare
def test_a_process_with_another_root(tmp_path: Path) -> None:
    """As in a container: its /opt/cuda is not ours. A static program makes itself one and has a library mapped."""
    root = tmp_path / "root"
    (root / "opt/cuda/lib64").mkdir(parents=True)
    program = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **arguments) {
    const char *root = arguments[1];
    if (count > 1 &&
        (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) || mount(root, root, 0, MS_BIND, 0) ||
         chdir(root) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/") ||
         execl("/job", "job", (char *)0)))
        return 2;
    int fd = open("/opt/cuda/lib64/libcudart.so.12.1.105", O_RDONLY);
    if (fd < 0 || mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) return 1;
    puts("ready"); fflush(stdout); getchar(); return 0;
}
"""
    subprocess.run(["gcc", "-static", "-x", "c", "-", "-o", str(root / "job")], input=program, text=True, check=True)
    library = str(root / "opt/cuda/lib64/libcudart.so.12.1.105")
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", library, "-Wl,--build-id=sha1"], check=True)
    with process(str(root / "job"), str(root)) as pid:
        done = libraries(pid, "--json")
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    (found,) = answer["libraries"]
    assert (found["path"], found["version"]) == ("/opt/cuda/lib64/libcudart.so.12.1.105", "12.1.105")
    assert (found["origin"], found["drifted"]) == ("system", None) and len(found["build_id"]) == 40


@pytest.mark.parametrize("argument", ["999999999", "0", "nosuch.json", "99999999999999999999999"])
def test_what_is_no_process_and_no_record(argument: str) -> None:
    done = libraries(argument)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ftforensics: ") and done.stderr.count("\n") == 1


def test_a_run_folder_with_two_records(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copy(ROOT / "docs/example.crash.json", tmp_path / f"{name}.crash.json")
    done = libraries(tmp_path)
    assert done.returncode == 2 and "holds 2 crash records; give one of them:" in done.stderr


def test_a_record() -> None:
    text = shown(ROOT / "docs/example.crash.json")
    assert row(text, "libcudart.so.12")[1] == "12.8.90"
    assert "kernel module: 530.30.02" in text and "reports CUDA: 12.1" in text

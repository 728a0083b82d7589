"""What this machine must have for a test, each said once, with the reason that a skipped test prints.

    from conditions import needs_root, PYTHONS

A condition is looked up when this file is imported, so keep each cheap. Append, never loosen: a condition that hides a
failure is worse than a red test.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Interpreter:
    """An installed CPython: `version` as (3, 11), `path` the real executable (no pyenv shim)."""

    version: tuple[int, int]
    path: str

    def __str__(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


SUPPORTED = [(3, minor) for minor in range(10, 15)]

# A shim answers only for versions that are switched on, a free-threaded build is refused by install(): ask each.
_ASK = (
    "import sys, sysconfig; print(sys.implementation.name, *sys.version_info[:2],"
    " int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))), sys.executable)"
)


def _ask(candidate: str) -> Interpreter | None:
    try:
        answer = subprocess.run([candidate, "-I", "-S", "-c", _ASK], capture_output=True, text=True, timeout=20)
    except OSError:
        return None
    words = answer.stdout.split(maxsplit=4)
    if answer.returncode != 0 or len(words) != 5 or words[0] != "cpython" or words[3] != "0":
        return None
    return Interpreter((int(words[1]), int(words[2])), words[4].strip())


def installed_pythons() -> list[Interpreter]:
    """One interpreter for each supported minor version that is installed, lowest first.

    The one that runs the tests stands for its own version.
    FTFORENSICS_PYTHONS (paths, ":" between) replaces the search.
    """
    named = os.environ.get("FTFORENSICS_PYTHONS")
    if named is not None:
        candidates = named.split(":")
    else:
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        # sys._base_executable: the interpreter behind a virtual environment.
        candidates = [getattr(sys, "_base_executable", sys.executable)]
        candidates += [str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python3"), reverse=True)]
        candidates += [found for x, y in SUPPORTED if (found := shutil.which(f"python{x}.{y}"))]
    found: dict[tuple[int, int], Interpreter] = {}
    for candidate in candidates:
        interpreter = _ask(candidate)
        if interpreter is not None and interpreter.version in SUPPORTED:
            found.setdefault(interpreter.version, interpreter)
    return [found[version] for version in sorted(found)]


PYTHONS = installed_pythons()


def _needs(met: bool, reason: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not met, reason=reason)


IS_ROOT = os.geteuid() == 0
HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_AARCH64 = shutil.which("aarch64-linux-gnu-gcc") is not None
QEMU_AARCH64 = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
CGROUP_V1_MEMORY = Path("/sys/fs/cgroup/memory")

needs_root = _needs(IS_ROOT, "needs root: makes control groups, mounts or other users' processes")
needs_unprivileged = _needs(not IS_ROOT, "means nothing as root: root passes every permission check")
needs_torch = _needs(HAS_TORCH, "torch is not installed in this environment (the pinned build is a Python 3.11 one)")
needs_gdb = _needs(shutil.which("gdb") is not None, "gdb is not installed")
needs_elfutils = _needs(shutil.which("eu-addr2line") is not None, "elfutils (eu-addr2line) is not installed")
# py-spy is a program, not a module; the environment's folder need not be on PATH.
needs_py_spy = _needs(
    shutil.which("py-spy") is not None or Path(sys.executable).with_name("py-spy").exists(), "py-spy is not installed"
)
needs_pystack = _needs(importlib.util.find_spec("pystack") is not None, "pystack is not installed")
needs_aarch64_compiler = _needs(HAS_AARCH64, "aarch64-linux-gnu-gcc is not installed")
needs_qemu_aarch64 = _needs(
    HAS_AARCH64 and QEMU_AARCH64 is not None, "aarch64-linux-gnu-gcc or qemu-aarch64 is not installed"
)
needs_x86_64 = _needs(platform.machine() == "x86_64", "the crash program is written in x86-64 machine code")
needs_cgroup_v1_memory = _needs(
    IS_ROOT and (CGROUP_V1_MEMORY / "memory.limit_in_bytes").exists(),
    "needs root and a version 1 memory hierarchy at /sys/fs/cgroup/memory",
)
needs_unshare = _needs(IS_ROOT and shutil.which("unshare") is not None, "needs root and unshare (namespaces)")
needs_frozen_disk = _needs(
    IS_ROOT
    and Path("/dev/loop-control").exists()
    and all(shutil.which(tool) for tool in ("mkfs.ext4", "mount", "fsfreeze")),
    "needs root, loop devices, mkfs.ext4 and fsfreeze",
)
needs_cxx = _needs(shutil.which("g++") is not None, "g++ is not installed")
needs_cc = _needs(shutil.which("gcc") is not None, "gcc is not installed")


def _huge_pages() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("HugePages_")}


# Without any, the one that a mapping promises can never be supplied.
needs_no_huge_pages = _needs(
    _huge_pages().get("HugePages_Total") == 0
    and Path("/proc/sys/vm/nr_overcommit_hugepages").read_text().strip() == "0",
    "means nothing where the kernel has reserved huge pages, or has none to map at all",
)

needs_tracefs = _needs(
    IS_ROOT and "\ttracefs\n" in Path("/proc/filesystems").read_text(),
    "needs root and a kernel with tracefs",
)
needs_kmsg = _needs(IS_ROOT and Path("/dev/kmsg").exists(), "needs root and /dev/kmsg")
# A pattern with a path or a pipe puts the core file somewhere else, and it is the whole machine's setting.
needs_core_files = _needs(
    Path("/proc/sys/kernel/core_pattern").read_text().startswith("core"),
    "kernel.core_pattern does not put core files into the working directory",
)
JEMALLOC = next(iter(sorted(Path("/usr/lib").glob("*/libjemalloc.so.2"))), None)
needs_jemalloc = _needs(JEMALLOC is not None, "libjemalloc2 is not installed")
needs_bash = _needs(shutil.which("bash") is not None, "bash is not installed")


def _in_initial_pid_namespace() -> bool:
    # include/linux/proc_ns.h, PROC_PID_INIT_INO
    return os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC


# The connector's process events (CONFIG_PROC_EVENTS; every distribution's kernel has them).
needs_proc_events = _needs(
    IS_ROOT and _in_initial_pid_namespace(), "needs root in the initial pid namespace: the kernel's process events"
)
needs_second_kernel = _needs(
    shutil.which("linux.uml") is not None and shutil.which("gcc") is not None,
    "user-mode-linux or gcc is not installed: no second kernel (second_kernel.py)",
)
# util-linux's; the one of busybox has neither -F nor --json.
needs_dmesg_formats = _needs(
    shutil.which("dmesg") is not None
    and b"--json" in subprocess.run(["dmesg", "--help"], capture_output=True, check=False).stdout,
    "dmesg of util-linux 2.38 or later is not installed",
)
needs_dmesg_restrict = _needs(
    IS_ROOT and Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1",
    "needs root, to become another user, and kernel.dmesg_restrict=1: else every user may read the kernel log",
)
needs_cgroup_v1_pids = _needs(
    IS_ROOT and Path("/sys/fs/cgroup/pids/cgroup.procs").exists(),
    "needs root and a version 1 pids hierarchy at /sys/fs/cgroup/pids",
)
needs_prlimit = _needs(shutil.which("prlimit") is not None, "prlimit is not installed")

needs_disk_of_its_own = pytest.mark.skipif(
    os.geteuid() != 0 or not all(shutil.which(name) for name in ("mkfs.ext4", "fsfreeze", "losetup")),
    reason="needs root and e2fsprogs: makes a file system and freezes it",
)

needs_fuse = _needs(
    IS_ROOT and Path("/dev/fuse").exists() and shutil.which("unshare") is not None,
    "needs root, unshare and /dev/fuse: mounts a file system whose server does not answer",
)

needs_cudnn_pair = _needs(
    bool(os.environ.get("FTFORENSICS_CUDNN_PAIR")), "downloads two cuDNN of 700 MB each: make cudnn-pair"
)

"""Whether a named process still runs: real processes, and pids that were given to others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftforensics.host.host import Host
from ftforensics.parsers.proc_files import process_state
from ftforensics.sources.processes import is_alive

if TYPE_CHECKING:
    from conftest import Files

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def started(pid: int) -> int:
    state = process_state(Path(f"/proc/{pid}/stat").read_text())
    assert state is not None
    return state.start_ticks


def test_a_process_that_runs_and_one_that_was_killed(sleeper: subprocess.Popen[bytes]) -> None:
    ticks = started(sleeper.pid)
    assert is_alive(Host(), sleeper.pid, ticks, BOOT) is True
    assert is_alive(Host(), sleeper.pid, ticks + 1, BOOT) is False  # its pid was given to another
    sleeper.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(Host(), sleeper.pid, ticks, BOOT) is False  # a zombie
    sleeper.wait()
    assert is_alive(Host(), sleeper.pid, ticks, BOOT) is False


def test_what_cannot_be_known() -> None:
    pid, ticks = os.getpid(), started(os.getpid())
    assert is_alive(Host(), pid, None, BOOT) is None
    assert is_alive(Host(), pid, ticks, None) is None
    assert is_alive(Host(), pid, ticks, "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d") is None
    assert is_alive(Host(), pid, ticks, BOOT, pid_namespace=1) is None
    assert is_alive(Host(), pid, ticks, BOOT, pid_namespace=os.stat("/proc/self/ns/pid").st_ino) is True


def test_a_machine_without_proc(tmp_path: Path) -> None:
    assert is_alive(Host(root=tmp_path), 1, 1, BOOT) is None


def test_a_broken_stat_file(files: Files, machine: Host) -> None:
    files.write("/proc/7/stat", "7 (x) S\n")
    boot = (files.root / "proc/sys/kernel/random/boot_id").read_text().strip()
    assert is_alive(machine, 7, 1, boot) is None
    assert is_alive(machine, 8, 1, boot) is False

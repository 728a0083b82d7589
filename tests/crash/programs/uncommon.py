"""Dies, or survives, in ways that do not fit the matrix: uncommon.py WAY FOLDER LIBRARY. Prints what it saw."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

import ftforensics
from ftforensics import _native


def die() -> None:
    ctypes.string_at(0)


def handler_of(number: int) -> bytes:
    """The installed C function, as the first word of struct sigaction."""
    action = ctypes.create_string_buffer(256)
    ctypes.CDLL(None).sigaction(number, None, action)
    return action.raw[:8]


def send(number: int) -> None:
    """From another process, and back when it has been delivered."""
    subprocess.run([sys.executable, "-c", f"import os; os.kill({os.getpid()}, {number})"], check=True)


def python_level_handler() -> None:
    signal.signal(signal.SIGSEGV, lambda *_: print("never reached"))
    print("stolen", _native.check_handlers())
    die()


def ignored_abort() -> None:
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    _native.check_handlers()
    send(signal.SIGABRT)
    print("alive")


def survived_signal() -> None:
    ours = handler_of(signal.SIGABRT)
    hits: list[int] = []
    signal.signal(signal.SIGABRT, lambda *_: hits.append(1))
    _native.check_handlers()
    send(signal.SIGABRT)
    print("hits", len(hits))
    deadline = time.monotonic() + 30
    while handler_of(signal.SIGABRT) != ours and time.monotonic() < deadline:
        time.sleep(0.05)  # the watcher arms us again when it is sure that the process lives on
    die()


def raw_fork() -> None:
    """A child that libc does not know of: no fork hook ran."""
    pid = ctypes.CDLL(None).syscall(*([57] if os.uname().machine == "x86_64" else [220, 17, 0, 0, 0, 0]))
    if pid == 0:
        die()
    print("child", os.waitpid(pid, 0)[1])
    die()


def vfork_child() -> None:
    """A child that crashes in our own memory, while we wait for it."""
    print("child", ctypes.CDLL(sys.argv[3]).vfork_and_die())
    die()


def uninstalled() -> None:
    ftforensics.uninstall()
    die()


def installed_again() -> None:
    ftforensics.uninstall()
    ftforensics.install(dir=sys.argv[2], helper="none")
    die()


if __name__ == "__main__":
    ftforensics.install(dir=sys.argv[2], helper="none")
    globals()[sys.argv[1]]()
    sys.stdout.flush()

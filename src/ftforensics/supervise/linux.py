"""System calls that Python's standard library lacks: prctl(2), signalfd(2), and what they need; our namespaces."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Iterable
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_GET_PDEATHSIG = 2
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_SFD_NONBLOCK = 0o4000
_SFD_CLOEXEC = 0o2000000
_SIGINFO_SIZE = 128  # man 2 signalfd
_SIGSET_BYTES = 128  # sigset_t of glibc: 1024 bits, signal n is bit n-1

INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # include/linux/proc_ns.h, PROC_PID_INIT_INO: its inode number

_libc = ctypes.CDLL(None, use_errno=True)


class Arrived(NamedTuple):
    """One signal. code: si_code; pid: its sender where one is named (code <= 0)."""

    number: int
    code: int
    pid: int


def become_subreaper(be: bool = True) -> None:
    """Orphaned descendants become our children, so that we learn how they end. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(be))


def die_with_parent(number: int) -> None:
    """This process gets the signal when the thread that made it ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def parents_death_signal() -> int:
    """What this process gets when its parent ends; 0 for nothing. Raises OSError."""
    number = ctypes.c_int()
    _prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value


def never_dump_core() -> None:
    """RLIMIT_CORE does not keep a core from a program behind core_pattern's `|` (man 5 core); this does."""
    _prctl(_PR_SET_DUMPABLE, 0)


def set_name(name: bytes) -> None:
    """What ps shows. At most 15 bytes."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name[:15]))


def signal_descriptor(numbers: Iterable[int]) -> int:
    """A descriptor that tells which of these (blocked) signals came, by whom. Raises OSError."""
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    bits = 0
    for number in numbers:
        bits |= 1 << (number - 1)
    mask.raw = bits.to_bytes(_SIGSET_BYTES, "little")
    fd = int(_libc.signalfd(-1, mask, _SFD_NONBLOCK | _SFD_CLOEXEC))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def read_signals(fd: int) -> list[Arrived]:
    """Everything that is waiting. Never blocks."""
    found: list[Arrived] = []
    while True:
        try:
            data = os.read(fd, _SIGINFO_SIZE * 16)
        except BlockingIOError:
            return found
        for at in range(0, len(data), _SIGINFO_SIZE):
            number, _, code, pid = struct.unpack_from("=IiiI", data, at)
            found.append(Arrived(number, code, pid))


def namespace(kind: str) -> int | None:
    """The inode number of our namespace of this kind: "pid", "cgroup" (man 7 namespaces)."""
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return None


def all_signals() -> set[int]:
    return {int(number) for number in signal.valid_signals()}


def _prctl(option: int, value: object) -> None:
    argument = ctypes.c_ulong(value) if isinstance(value, int) else value
    if _libc.prctl(option, argument, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

"""Standard output and error: what each of them is, and what the command gets in its place.

A terminal stays a terminal and a pipe a pipe. Standard input is never touched: the command reads the terminal itself,
in the session and process group that it would have had, so keyboard, job control and raw mode are the kernel's business
and not ours. Only output takes a detour:

  a terminal      a pseudo-terminal of the same size. It passes bytes on as they are (OPOST off); line ends are made by
  the
                  real terminal behind it, as the command has set it.
  anything else   a pipe
  the same file   one detour for both numbers (`2>&1`), so that the order between them is kept
  closed          stays closed
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_PIPE_SIZE = 1 << 20  # /proc/sys/fs/pipe-max-size of an unconfigured kernel; the default of 64 KiB costs throughput


class Route(NamedTuple):
    """One detour. numbers: the descriptors that it stands for; inner: the command's end; outer: the copier's end; real:
    where the bytes go; terminal: the pseudo-terminal's name, else None."""

    numbers: tuple[int, ...]
    inner: int
    outer: int
    real: int
    terminal: str | None = None


def closed() -> list[int]:
    """Which of the standard descriptors are closed. Others, opened next, would get their numbers."""
    return [number for number in range(3) if not _is_open(number)]


def occupy(numbers: Iterable[int]) -> None:
    """Put /dev/null on these, so that nothing of ours gets the number of a standard stream."""
    for number in numbers:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)


def keep_only(wanted: Iterable[int]) -> None:
    """Close every other descriptor of this (forked) process: who else waits for their end of file must not wait for
    us."""
    kept = set(wanted)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing's own
    occupy(number for number in range(3) if number not in kept)


def plan(closed_numbers: Iterable[int]) -> list[Route]:
    """The detours for standard output and error. Raises OSError when no pipe or pseudo-terminal can be had."""
    open_numbers = [number for number in (1, 2) if number not in set(closed_numbers)]
    if len(open_numbers) == 2 and os.path.sameopenfile(1, 2):
        return [_detour((1, 2))]
    return [_detour((number,)) for number in open_numbers]


def copy_size(real: int, terminal: str) -> bool:
    """Give the pseudo-terminal the real one's size. True when that changed something."""
    try:
        size = _size(real)
        inner = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if _size(inner) == size:
            return False
        fcntl.ioctl(inner, termios.TIOCSWINSZ, size)
        return True
    except OSError:
        return False
    finally:
        os.close(inner)


def waiting(fd: int) -> int:
    """Bytes that can be read now."""
    return int(struct.unpack("=i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0])


def _detour(numbers: tuple[int, ...]) -> Route:
    real = fcntl.fcntl(numbers[0], fcntl.F_DUPFD_CLOEXEC, 10)
    if os.isatty(real):
        outer, inner = os.openpty()
        attributes = termios.tcgetattr(real)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(inner, termios.TCSANOW, attributes)
        fcntl.ioctl(inner, termios.TIOCSWINSZ, _size(real))
        return Route(numbers, inner, outer, real, os.ttyname(inner))
    outer, inner = os.pipe()
    with suppress(OSError):  # EPERM: this user's share of pipe memory is used up (man 7 pipe)
        fcntl.fcntl(outer, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    return Route(numbers, inner, outer, real)


def _size(fd: int) -> bytes:
    return fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True

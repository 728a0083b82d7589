"""Starts the command as it would have started without us: signals, descriptors, environment, process group."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ftforensics.capture import procfs
from ftforensics.parsers import proc_text
from ftforensics.supervise import streams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOT_FOUND = 127  # as shells, env(1), nohup(1) and timeout(1) say it
NOT_EXECUTABLE = 126


class Surroundings(NamedTuple):
    """What this process inherited. Taken before anything is changed.

    mask: blocked signals; default, ignored: what the command has to find so, and we have changed; closed: of the
    standard descriptors.
    """

    mask: set[int]
    default: list[int]
    ignored: list[int]
    closed: list[int]


def surroundings() -> Surroundings:
    _undo_coercion()
    mask = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])}
    changed = [signal.SIGPIPE, signal.SIGXFSZ]  # ignored by every Python from its start (Python/pylifecycle.c)
    if _parent_ignores_pipe():
        changed.remove(signal.SIGPIPE)
    # A handler is reset by exec; an inherited "ignore" (nohup, a background job's SIGINT) stays by itself.
    ignored = []
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Then the kernel reaps our children unseen (man 2 wait, NOTES).
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ignored.append(int(signal.SIGCHLD))
    return Surroundings(mask, [int(number) for number in changed], ignored, streams.closed())


def start(
    command: Sequence[str],
    environ: Mapping[bytes, bytes],
    given: Mapping[int, int | None],
    found: Surroundings,
) -> int:
    """Fork and execute. given: what becomes of descriptors 0 to 2: another descriptor, None to close it; left out: as
    it is. The pid is returned once the command runs, or has ended with 126 or 127 and one line on its standard error.

    Called while this process has one thread. Raises OSError when there can be no further process.
    """
    from ftforensics.supervise import linux  # needs ctypes, and `become` has to do without

    with_parent = linux.parents_death_signal() == signal.SIGKILL  # any other signal reaches us, and is passed on
    started, starting = os.pipe()  # close-on-exec: end of file is success
    pid = os.fork()
    if pid == 0:
        if with_parent:
            linux.die_with_parent(signal.SIGKILL)
        become(command, environ, given, found)
    os.close(starting)
    os.read(started, 1)
    os.close(started)
    return pid


def become(
    command: Sequence[str], environ: Mapping[bytes, bytes], given: Mapping[int, int | None], found: Surroundings
) -> NoReturn:
    """Turn this process into the command, or end with 126 or 127."""
    status = NOT_EXECUTABLE
    try:
        for number, source in given.items():
            if source is None:
                with suppress(OSError):
                    os.close(number)
            else:
                os.dup2(source, number)  # clears close-on-exec
        for number in found.default:
            signal.signal(number, signal.SIG_DFL)
        for number in found.ignored:
            signal.signal(number, signal.SIG_IGN)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, found.mask)
        try:
            _execute(command, environ)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            _execute(command, os.environb)  # a few bytes from the limit: what we have added is what is too much
    except OSError as error:
        if error.errno == errno.ENOENT:
            status = NOT_FOUND
        reason = f"ftforensics: cannot run {command[0]!r}: {os.strerror(error.errno or 0)}\n"
        with suppress(OSError):
            os.write(2, reason.encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


def _execute(command: Sequence[str], environ: Mapping[bytes, bytes]) -> NoReturn:
    """Along PATH. A text file without `#!` goes to sh, as execvp(3) does it and Python's own does not."""
    name = os.fsencode(command[0])
    arguments = [os.fsencode(argument) for argument in command]
    if not name:  # Python refuses an empty argument 0 by a ValueError
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if b"/" in name:
        places = [name]
    else:
        search = environ.get(b"PATH", os.fsencode(os.defpath))
        places = [os.path.join(folder or b".", name) for folder in search.split(b":")]
    refused: OSError | None = None
    for place in places:
        try:
            os.execve(place, arguments, dict(environ))
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                os.execve("/bin/sh", [b"sh", place, *arguments[1:]], dict(environ))
            if refused is None or error.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _undo_coercion() -> None:
    """In the locale C, Python sets LC_CTYPE to one with UTF-8 (PEP 538), in the environment too. The command shall find
    what we found; our own locale stays."""
    name = b"LC_CTYPE"
    block = procfs.read("/proc/self/environ", 1 << 22)  # as the kernel handed it over
    if not block or name not in os.environb:
        return
    found = [entry for entry in block.split(b"\0") if entry.startswith(name + b"=")]
    if found:
        os.environb[name] = found[0].partition(b"=")[2]
    else:
        del os.environb[name]


def _parent_ignores_pipe() -> bool:
    """Did we inherit an ignored SIGPIPE? Python has overwritten that before we run, so it is a guess: the parent
    ignores it (a systemd service's shell: IgnoreSIGPIPE=yes is systemd's default), and it is not itself a Python, which
    would ignore SIGXFSZ as well and reset both for its children (subprocess, restore_signals)."""
    ignored = proc_text.status(procfs.read_text(f"/proc/{os.getppid()}/status", 16384) or "").ignored
    pipe, size = (bool(ignored >> (int(number) - 1) & 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
    return pipe and not size and os.getppid() != 1

"""The one door to a machine's files, commands and clock.

`Host()` is this machine. `Host(root=folder)` is a copy of some machine's files, or a test's: every path is looked up
under `root`, and an absolute symbolic link found there stays there, as after chroot(2). What the machine does not give
is a `Refusal`, which turns itself into a `Gap`; nothing here raises a bare OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.moment import Moment

READ_LIMIT = 16 << 20  # bytes; /proc/pid/maps of a large job is about 1 MB, torch's RECORD 2 MB
OUTPUT_LIMIT = 16 << 20  # bytes of a command's standard output
COMPLAINT_LIMIT = 64 << 10  # bytes of a command's standard error
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PIECE = 64 << 10  # bytes read at once
CACHE_LIMIT = 64 << 20  # bytes of one cached file
LINK_LIMIT = 40  # symbolic links followed in one look-up, as the kernel (man path_resolution)
KMSG = "/dev/kmsg"
KMSG_NUMBER = (1, 11)  # major, minor (Documentation/admin-guide/devices.txt)
KMSG_RECORD = (
    16 << 10
)  # bytes of one record; a smaller buffer is refused with EINVAL (Documentation/ABI/testing/dev-kmsg)
KMSG_LIMIT = 64 << 20  # bytes of all records; the ring itself is 128 KiB to 16 MiB on most machines


class Refusal(Exception):
    """A file or command that the machine does not give. what: the path or program; reason: one phrase."""

    def __init__(self, what: str, reason: str, code: int | None = None) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason
        self.code = code  # errno, when a system call said it

    @property
    def absent(self) -> bool:
        """True when the thing is not there, as opposed to being there and kept from us."""
        return self.code in (errno.ENOENT, errno.ENOTDIR)

    def gap(self, source: str, grant: str | None = None) -> Gap:
        return Gap(source=source, why=str(self), grant=grant)


class Completed(msgspec.Struct, frozen=True):
    """How a command ended. status: exit status, negative = killed by that signal; None = still running, and left
    behind, after SIGKILL (a task in uninterruptible sleep)."""

    argv: tuple[str, ...]
    status: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    cut: bool = False  # more standard output than the limit; the command was ended
    seconds: float = 0.0

    def complaint(self, timeout: float) -> str:
        """Why a command that failed gave nothing: one phrase, its own first words where it said any. timeout: the
        seconds that it had."""
        if self.timed_out:
            return f"no answer within {timeout:g} s"
        said = self.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        return said[0][:200] if said else f"ended with status {self.status}"


class KernelRing(msgspec.Struct, frozen=True):
    """The records of /dev/kmsg, oldest first; None where records are lost because the kernel wrote faster than we read.
    cut: the deadline or the limit came before the newest record."""

    records: list[bytes | None]
    cut: bool = False


Run = Callable[[Sequence[str], float, int], Completed]


def run_command(argv: Sequence[str], timeout: float, output_limit: int = OUTPUT_LIMIT) -> Completed:
    """Run `argv` in its own session with no input, a bare environment and a deadline in seconds.

    The environment is made new, not filtered: what a training job exports (LD_LIBRARY_PATH, LD_PRELOAD, PYTHONPATH,
    tokens) would change what the command does or show up in its output. At the deadline the whole process group is
    killed, and the command itself with us when we are killed. Raises Refusal when the program cannot be started.
    """
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def die_with_parent() -> None:
        # Who kills us at our deadline does not know the child; a tracer that outlives us would hold its tracee.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call (man 2 prctl)
            os._exit(1)

    environment = {"PATH": os.environ.get("PATH") or os.defpath, "LC_ALL": "C", "HOME": "/nonexistent"}
    start = time.monotonic()
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        raise Refusal(argv[0], os.strerror(error.errno or 0), error.errno) from error
    try:
        stdout, stderr, ended = _drain(child, start + timeout, output_limit)
    except BaseException:  # an alarm or Ctrl-C: what we started does not outlive us
        _reap(child, start, kill=True)
        raise
    timed_out = not ended and len(stdout) <= output_limit
    status = _reap(child, start + timeout, kill=not ended)
    if ended and status is None:  # it closed its pipes and lives on
        timed_out = True
        status = _reap(child, start + timeout, kill=True)
    return Completed(
        argv=tuple(argv),
        status=status,
        stdout=bytes(stdout[:output_limit]),
        stderr=bytes(stderr),
        timed_out=timed_out,
        cut=len(stdout) > output_limit,
        seconds=time.monotonic() - start,
    )


def _drain(child: subprocess.Popen[bytes], deadline: float, limit: int) -> tuple[bytearray, bytearray, bool]:
    """Read both pipes to their ends. The last value is False when the deadline or the limit came first."""
    assert child.stdout is not None and child.stderr is not None
    stdout, stderr = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector, child.stdout, child.stderr:
        selector.register(child.stdout, selectors.EVENT_READ, stdout)
        selector.register(child.stderr, selectors.EVENT_READ, stderr)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0 or len(stdout) > limit:
                return stdout, stderr, False
            for key, _ in selector.select(left):
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.data is stdout or len(stderr) < COMPLAINT_LIMIT:
                    key.data.extend(piece)
    return stdout, stderr, True


def _reap(child: subprocess.Popen[bytes], deadline: float, kill: bool) -> int | None:
    if kill:
        # The child leads its own session, so the group holds it and its descendants, nothing of the caller.
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        deadline = time.monotonic() + 0.5  # SIGKILL is prompt, or the task hangs in the kernel and nothing helps
    try:
        return child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def drain_ring(read: Callable[[], bytes], limit: int, deadline: float) -> KernelRing:
    """Records one by one until there is none waiting (EAGAIN). limit: bytes; deadline: on the clock of time.monotonic,
    for a machine whose log is written without end. Raises OSError for what else the kernel refuses."""
    records: list[bytes | None] = []
    size = 0
    while size <= limit and time.monotonic() <= deadline:
        try:
            record = read()
        except BlockingIOError:
            return KernelRing(records)
        except BrokenPipeError:  # the next one is overwritten; reading goes on at the oldest that is left
            if records[-1:] != [None]:
                records.append(None)
            continue
        if not record:
            return KernelRing(records)
        records.append(record)
        size += len(record)
    return KernelRing(records, cut=True)


class Host:
    """root: where "/" of the machine is; run: starts commands; now: seconds since the epoch."""

    def __init__(self, root: str | Path = "/", run: Run = run_command, now: Callable[[], float] = time.time) -> None:
        self.root = Path(root)
        self.now = now
        self._run = run
        self._here = str(self.root) == "/"
        # A runner that was given for a copied root is that machine's; our own commands speak about this one.
        self._runs = self._here or run is not run_command

    def __repr__(self) -> str:
        return f"Host(root={str(self.root)!r})"

    @property
    def live(self) -> bool:
        """True for the machine we run on; commands and /proc of a copied root say nothing about it."""
        return self._here

    @property
    def runs_commands(self) -> bool:
        """Does what a command says belong to this machine? Not for a copied root without a runner of its own."""
        return self._runs

    def moment(self) -> Moment:
        """Now. The monotonic clock is known for the machine we run on only."""
        return Moment(realtime=self.now(), monotonic=time.monotonic() if self._here else None)

    def local(self, path: str | Path) -> str:
        """Where `path` of the machine lies for us, links followed. Raises Refusal on a link loop."""
        if self._here:
            return str(path)
        return str(self.root) + self.real_path(path)

    def real_path(self, path: str | Path) -> str:
        """The machine's own path with every symbolic link followed; a missing last part is kept as it is. Raises
        Refusal for what is no path, as a record may name one."""
        if self._here:
            try:
                return os.path.realpath(path)
            except ValueError as error:
                raise _refusal(path, error) from error
        done: list[str] = []
        rest = [part for part in str(path).split("/") if part][::-1]
        links = 0
        while rest:
            part = rest.pop()
            if part == ".":
                continue
            if part == "..":
                done = done[:-1]
                continue
            try:
                target = os.readlink(str(self.root) + "/" + "/".join([*done, part]))
            except OSError:  # EINVAL: not a link; ENOENT: kept
                done.append(part)
                continue
            except ValueError as error:
                raise _refusal(path, error) from error
            links += 1
            if links > LINK_LIMIT:
                raise Refusal(str(path), os.strerror(errno.ELOOP), errno.ELOOP)
            if target.startswith("/"):
                done = []
            rest.extend([piece for piece in target.split("/") if piece][::-1])
        return "/" + "/".join(done)

    def open(self, path: str | Path) -> BinaryIO:
        """A regular file for reading. A FIFO or device is refused, and not even opened: to open some devices is to do
        something (a watchdog, a tape), and which path is opened may come from a record."""
        try:
            fd = _open_checked(
                self.local(path),
                lambda status: stat.S_ISREG(status.st_mode),
                Refusal(str(path), "not a regular file", errno.EINVAL),
            )
        except (OSError, ValueError) as error:
            raise _refusal(path, error) from error
        return os.fdopen(fd, "rb")

    def read_bytes(self, path: str | Path, limit: int = READ_LIMIT) -> bytes:
        """The file's content, at most `limit` bytes. A longer file is a Refusal: half a file misleads."""
        content = self.read_start(path, limit + 1)
        if len(content) > limit:
            raise Refusal(str(path), f"larger than {limit} bytes", errno.EFBIG)
        return content

    def read_start(self, path: str | Path, size: int) -> bytes:
        """The first `size` bytes, fewer when the file is shorter."""
        content = bytearray()
        with self.open(path) as file:
            try:
                # By pieces: the kernel allocates a buffer of the size asked for when a /proc/sys file is read (6.18,
                # fs/proc/proc_sysctl.c) and refuses large ones.
                while len(content) < size and (piece := os.read(file.fileno(), min(PIECE, size - len(content)))):
                    content += piece
            except OSError as error:
                raise _refusal(path, error) from error
        return bytes(content)

    def read_end(self, path: str | Path, size: int) -> bytes:
        """The last `size` bytes, all of a shorter file. Where it is longer, the first line is a part of one."""
        with self.open(path) as file:
            try:
                file.seek(max(0, os.fstat(file.fileno()).st_size - size))
                return file.read(size)  # not more: a log that is written without end
            except OSError as error:
                raise _refusal(path, error) from error

    def kernel_ring(self, timeout: float = 2.0, limit: int = KMSG_LIMIT) -> KernelRing:
        """Everything that /dev/kmsg holds now, from the oldest record. timeout: seconds.

        The one device that is opened here: reading it takes nothing away from other readers. A container may have
        something else under that name (a link to its console), which is refused.
        """
        if not self._here:
            raise Refusal(KMSG, "a copy of files has no kernel log device", errno.ENOENT)
        try:
            fd = _open_checked(
                KMSG,
                lambda status: stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(*KMSG_NUMBER),
                Refusal(KMSG, "not the kernel's log device", errno.ENODEV),
            )
            try:
                return drain_ring(lambda: os.read(fd, KMSG_RECORD), limit, time.monotonic() + timeout)
            finally:
                os.close(fd)
        except OSError as error:
            raise _refusal(KMSG, error) from error

    def statvfs(self, path: str | Path) -> os.statvfs_result:
        """Room of the file system at `path`. Refused for a copied root, which lies on another file system."""
        if not self._here:
            raise Refusal(str(path), "a copy of files says nothing about the file system's room", errno.ENOTSUP)
        try:
            return os.statvfs(path)
        except (OSError, ValueError) as error:
            raise _refusal(path, error) from error

    def read_text(self, path: str | Path, limit: int = READ_LIMIT) -> str:
        """As read_bytes; a byte that is not UTF-8 becomes the four characters `\\xNN`."""
        return self.read_bytes(path, limit).decode("utf-8", "backslashreplace")

    def stat(self, path: str | Path) -> os.stat_result:
        try:
            return os.stat(self.local(path))
        except (OSError, ValueError) as error:
            raise _refusal(path, error) from error

    def exists(self, path: str | Path) -> bool:
        try:
            self.stat(path)
        except Refusal:
            return False
        return True

    def guarded(self, path: str | Path) -> bool:
        """Can nobody but root and the caller have put this file there? A path that a record names may be anybody's.

        Links followed; the file and every folder above it must belong to one of the two and be closed to others, as
        sshd asks of its files. A sticky folder (/tmp) keeps others from replacing what is in it.
        """
        try:
            place = os.path.realpath(self.local(path))
        except (Refusal, ValueError):  # a link loop, an embedded NUL
            return False
        while True:
            try:
                status = os.lstat(place)
            except OSError:
                return False
            open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
            if status.st_uid not in (0, os.geteuid()) or (open_to_others and not sticky):
                return False
            if place == os.path.dirname(place):
                return True
            place = os.path.dirname(place)

    def names(self, folder: str | Path) -> list[str]:
        """Sorted names in a folder, without "." and ".."."""
        try:
            return sorted(os.listdir(self.local(folder)))
        except (OSError, ValueError) as error:
            raise _refusal(folder, error) from error

    def listed(self, folder: str | Path) -> list[str]:
        """As names; [] for a folder that is not there or is kept from us, where that makes no difference."""
        try:
            return self.names(folder)
        except Refusal:
            return []

    def read_cache(self, name: str, limit: int = CACHE_LIMIT) -> bytes:
        """A file of the user's cache that `write_cache` made. Raises Refusal when there is none."""
        folder = self._cache_folder()
        if folder is None:
            raise Refusal(name, "no cache", errno.ENOENT)
        return self.read_bytes(f"{folder}/{name}", limit)

    def write_cache(self, name: str, content: bytes) -> None:
        """Keep `content` for later runs of this user. Failure is silent: the next run works a little longer."""
        folder = self._cache_folder()
        if folder is None or len(content) > CACHE_LIMIT:
            return
        unfinished = f"{folder}/.{name}.{os.getpid()}"
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(content)
            os.replace(unfinished, f"{folder}/{name}")  # ranks of one job write it at the same time
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)

    def _cache_folder(self) -> str | None:
        """None for a copied root: what was read there must not be taken for this machine's."""
        if not self._here:
            return None
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return f"{base}/ftforensics" if base.startswith("/") else None

    def run(self, argv: Sequence[str], timeout: float, output_limit: int = OUTPUT_LIMIT) -> Completed:
        """Run a command on this machine (see `run_command`)."""
        return self._run(argv, timeout, output_limit)


def _open_checked(place: str, wanted: Callable[[os.stat_result], bool], refusal: Refusal) -> int:
    """A descriptor for reading, without waiting, of what is `wanted`. Raises `refusal` for anything else."""
    # O_PATH opens nothing but the name (man 2 open). What it names cannot change after the check.
    name = os.open(place, os.O_PATH | os.O_CLOEXEC)
    try:
        if not wanted(os.fstat(name)):
            raise refusal
        return os.open(f"/proc/self/fd/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(name)


def _refusal(path: str | Path, error: OSError | ValueError) -> Refusal:
    if isinstance(error, ValueError):  # an embedded NUL, a lone surrogate
        return Refusal(repr(str(path)), "not a path", errno.EINVAL)
    return Refusal(str(path), os.strerror(error.errno or 0), error.errno)

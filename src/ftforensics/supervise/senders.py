"""Who sends SIGKILL and SIGTERM: the kernel's tracepoint signal:signal_generate, in a tracefs instance of our own.

SIGKILL leaves no siginfo behind, and the kernel logs no line for a kill(2): the only witness is a trace that was armed
before. An instance (Documentation/trace/ftrace.rst, "Instances") has its own buffer, clock and filter, so that nobody
else's tracing is disturbed and ours is not disturbed either.

`trace_pipe` is held open for life. That is the lock as well: the kernel answers EBUSY to the removal of an instance
whose pipe is open. An instance whose supervisor was killed can therefore be told from one in use, and the next start
removes it. `fd` is close-on-exec; a child that is forked and goes on without exec must close it, or it keeps the lock.

A sender's pid is certain, its name is not quite: the kernel notes names when a thread next leaves its processor. A
shell that kills with its builtin and then becomes its last command (`bash -c 'kill -9 1; sleep 1'`) may be shown as
`sleep`.

tracefs is used where it is mounted; where it is not, through a mount that nobody else sees (`tracefs.py`).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ftforensics.capture import procfs
from ftforensics.parsers.trace_pipe import SentLine, TracePipe
from ftforensics.supervise import linux
from ftforensics.supervise.tracefs import private_mount

OnGap = Callable[[str, "str | None"], None]

PLACES = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
PREFIX = "ftforensics-"
EVENT = "events/signal/signal_generate"
WHAT = "who sends a SIGKILL is not seen"
AS_ROOT = "sudo -E ftforensics run -- COMMAND"

_FILTER = "sig==9||sig==15"
# Per CPU. 130 bytes an event: room for 200 kills between two reads, and the kernel rounds up to whole pages anyway.
_BUFFER_KB = "32"
_READ = 65536
_UNNAMED = "<...>"  # kernel/trace/trace_sched_switch.c, __trace_find_cmdline
_MOST_AT_ONCE = 64  # reads, so that a storm of signals elsewhere on the machine cannot hold the supervisor up
_TRIES = 5


class Senders:
    """An armed trace. fd: readable (poll) when a signal was sent."""

    def __init__(self, path: str, fd: int, on_gap: OnGap, mount: int = -1) -> None:
        """mount: descriptor of a mount of our own, to be closed with the rest; -1 for none."""
        self.path = path
        self._mount = mount
        self.fd = fd
        self._on_gap = on_gap
        self._pipe = TracePipe()
        self._said_lost = False
        self._broken = False
        # Tids in a trace are those of the initial namespace; only there does /proc mean the same by them.
        self._look_up = linux.namespace("pid") == linux.INITIAL_PID_NAMESPACE

    def read(self) -> list[SentLine]:
        """Every signal since the last call, also other people's: the machine's, not only the job's. Never blocks. A
        signal is traced before its target can end, so a read after a death has its sender."""
        found: list[SentLine] = []
        for _ in range(_MOST_AT_ONCE):
            try:
                data = os.read(self.fd, _READ)
            except BlockingIOError:
                break
            except OSError as error:
                self._complain(f"the trace of signals can no longer be read ({error.strerror}): {WHAT}")
                break
            if not data:
                break
            found += self._pipe.feed(data)
        if self._pipe.lost and not self._said_lost:
            self._said_lost = True
            self._on_gap("the kernel dropped traced signals, more came than its buffer holds", None)
        return [self._with_process(line) for line in found]

    def close(self) -> None:
        """Stop tracing and remove the instance. One that is still busy (a forked child holds the pipe) stays for the
        next start to remove, switched off."""
        with suppress(OSError):
            _write(f"{self.path}/{EVENT}/enable", "0")
        os.close(self.fd)
        _remove(self.path)
        if self._mount >= 0:
            os.close(self._mount)

    def _with_process(self, line: SentLine) -> SentLine:
        if not self._look_up:
            return line
        pid = _thread_group(line.sender_tid, line.at)
        if line.sender_comm == _UNNAMED:  # too many others ran since the kernel noted its name
            name = procfs.read_text(f"/proc/{line.sender_tid}/comm", 64) if pid is not None else None
            line = line._replace(sender_comm=name.rstrip("\n") if name else "")
        return line._replace(sender_pid=pid)

    def _complain(self, why: str) -> None:
        if not self._broken:
            self._broken = True
            self._on_gap(why, None)


def open_tracing(on_gap: OnGap, places: Sequence[str] = PLACES) -> Senders | None:
    """Arm the trace. None when that is not possible; then `on_gap(why, grant)` was called once. places: where tracefs
    may be mounted."""
    mount = -1
    try:
        place = next((place for place in places if os.path.isdir(f"{place}/instances")), None)
        if place is None:
            try:
                mount = private_mount()
            except OSError as error:
                on_gap(*_not_mounted(places, error))
                return None
            place = f"/proc/self/fd/{mount}"
        remove_left_over(place)
        path, fd = _make(place)
    except OSError as error:
        on_gap(*_refused(error))
        _close(mount)
        return None
    try:
        _write(f"{path}/trace_clock", "mono")
        _write(f"{path}/buffer_size_kb", _BUFFER_KB)
        _write(f"{path}/{EVENT}/filter", _FILTER)
        _write(f"{path}/{EVENT}/enable", "1")
    except OSError as error:
        os.close(fd)
        _remove(path)
        on_gap(*_refused(error))
        _close(mount)
        return None
    return Senders(path, fd, on_gap, mount)


def remove_left_over(place: str) -> None:
    """Remove the instances that supervisors which were killed left in `place`; one in use answers EBUSY and stays."""
    for name in os.listdir(f"{place}/instances"):
        if name.startswith(PREFIX):
            _remove(f"{place}/instances/{name}")


def _make(place: str) -> tuple[str, int]:
    """A new instance and its open pipe. Another supervisor that starts just now may take the instance for a left-over
    one in the moment before the pipe is open: then it is made again."""
    pid = os.getpid()
    path = f"{place}/instances/{PREFIX}{pid}-{procfs.start_ticks(pid) or 0}"
    for attempt in range(_TRIES):
        try:
            os.mkdir(path)
        except FileExistsError:
            # A second trace of this process, or (same pid, same tick) of one in another pid namespace.
            path = f"{path}.{attempt}"
            continue
        try:
            return path, os.open(f"{path}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno == errno.ENODEV:  # it is being removed (kernel/trace/trace.c, trace_array_get)
                continue
            _remove(path)
            raise
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)


def _close(mount: int) -> None:
    if mount >= 0:
        os.close(mount)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.rmdir(path)


def _write(path: str, text: str) -> None:
    # No O_CREAT, no O_TRUNC: these files are switches.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _not_mounted(places: Sequence[str], error: OSError) -> tuple[str, str | None]:
    if error.errno == errno.ENODEV:
        return f"this kernel has no tracefs: {WHAT}", None
    # The mount point of an unmounted tracefs is an empty directory; one that only root may enter looks the same.
    if os.geteuid() != 0:
        return f"only root may trace signals: {WHAT}", AS_ROOT
    return f"tracefs is not mounted: {WHAT}", f"mount -t tracefs nodev {places[0]}"


def _refused(error: OSError) -> tuple[str, str | None]:
    where = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
        return f"only root may trace signals ({where}): {WHAT}", AS_ROOT
    if error.errno == errno.EROFS:
        return f"tracefs is mounted read-only, as containers do it ({where}): {WHAT}", "docker run --privileged ..."
    if error.errno == errno.ENOENT:
        return f"this kernel has no tracepoint for signals ({where}): {WHAT}", None
    return f"tracing was refused ({where}): {WHAT}", None


def _thread_group(tid: int, at: float) -> int | None:
    """The process of a thread that sent something at `at`. None when it is gone, or when its number already belongs to
    somebody who started later."""
    ticks = procfs.start_ticks(tid)
    if ticks is None:
        return None
    suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()  # starttime counts suspend, `at` does not
    if ticks / os.sysconf("SC_CLK_TCK") > at + suspended + 0.02:  # a tick is 10 ms
        return None
    return procfs.thread_group(tid)

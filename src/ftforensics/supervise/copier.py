"""The process that carries the job's output from its pipes to where it belongs, and a copy to the log.

It has a session of its own: neither a Ctrl-C nor a hang-up nor a signal to the job's process group reaches it, and it
lives on when the supervisor is killed. The job then notices nothing: its output arrives, and it ends as it would have.
The copier ends when nobody can write any more, which may be long after the job, when that left something running.

One thread a stream, each of them in read(2) or write(2) all the time; a reader that does not read holds up its own
stream only, as it would without us."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from ftforensics.supervise import linux, streams
from ftforensics.supervise.launcher_log import LogProcess, Tap
from ftforensics.supervise.streams import Route

_STACK = 512 << 10  # bytes a thread; the default is `ulimit -s`, which can be more than `ulimit -v` leaves
CHUNK = 1 << 16  # stays in the cache: twice as fast as 1 MiB where two cores share one job's output
FINISH, FORGET = b"finish", b"forget"  # the latter when nobody will want the log
READY = b"ready"
PATIENCE = 10.0  # seconds without a byte moved: whoever reads our output does not read now
_QUIET = 0.05  # seconds; a pseudo-terminal hands bytes over in the background (drivers/tty/tty_buffer.c, 6.18)
_TERMINAL_PATIENCE = 2.0
_TAP_PATIENCE, _LOG_PATIENCE, _END_PATIENCE = 5.0, 8.0, 120.0


class Delivery(NamedTuple):
    """drained: everything that the job wrote has been passed on; log_bytes, log_cut: of launcher.log; refused: the
    error number when a file took no more (a full disk), else 0; gone: the copier was not there any more."""

    drained: bool
    log_bytes: int | None
    log_cut: bool
    refused: int = 0
    gone: bool = False


class Copier:
    """The supervisor's end."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control

    def ask_finish(self, *, keep_log: bool) -> None:
        """The job has ended. `answer` becomes readable on `control` when its output is delivered and the log, if it is
        to be kept, closed."""
        try:
            self.control.send(FINISH if keep_log else FORGET)
        except OSError:
            return

    def answer(self) -> Delivery:
        try:
            words = self.control.recv(200).split()
            if not words:
                return Delivery(False, None, False, gone=True)
            size = int(words[1]) if words[1] != b"-" else None
            return Delivery(words[0] == b"1", size, words[2] == b"1", int(words[3]))
        except (OSError, IndexError, ValueError):
            return Delivery(False, None, False)


def start_copier(routes: Sequence[Route], log: LogProcess | None) -> Copier:
    """Fork it, and wait until it copies: a command must not be given pipes that nobody reads. The caller closes its own
    ends of the routes and of the log. Raises OSError, also when it cannot have its threads."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        if ours.recv(100) != READY:
            ours.close()
            os.waitpid(pid, 0)
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return Copier(pid, ours)
    try:
        _live(routes, log, theirs)
    finally:
        os._exit(0)


def _live(routes: Sequence[Route], log_process: LogProcess | None, control: socket.socket) -> None:
    os.setsid()
    # Blocked, not ignored: a write to a pipe without a reader must fail with EPIPE either way.
    signal.pthread_sigmask(signal.SIG_SETMASK, linux.all_signals())
    linux.set_name(b"ftf-copier")
    os.chdir("/")  # it may live long, and must not keep a file system from being unmounted
    kept = [control.fileno(), *(fd for route in routes for fd in (route.outer, route.real))]
    streams.keep_only([*kept, *(log_process[1:] if log_process else ())])
    threading.stack_size(_STACK)
    log = _Log(log_process)
    pumps = [_Pump(number, route, log) for number, route in enumerate(routes, 1)]
    for pump in pumps:
        pump.start()
    control.send(READY)
    while data := control.recv(100):
        if data in (FINISH, FORGET):
            drained = _wait_drained(pumps)
            size, cut = log.close() if data == FINISH else log.forget()
            refused = max(pump.refused for pump in pumps)
            control.send(f"{int(drained)} {'-' if size is None else size} {int(cut)} {refused}".encode())
            break
    control.close()
    for pump in pumps:
        pump.join()
    log.close()
    log.end()


class _Log:
    """The tap to the log's process; nothing when there is no log."""

    def __init__(self, process: LogProcess | None) -> None:
        self._process = process
        self._tap = Tap(process.data) if process else None
        self._closing: Tap | None = None
        self._closed: tuple[int | None, bool] = (None, False)

    def put(self, stream: int, data: bytes) -> None:
        if self._tap is not None:
            self._tap.put(stream, data)

    def forget(self) -> tuple[int | None, bool]:
        """Without waiting: a log that does not get on (a file server that is away) must not hold up a good end."""
        self._tap = None
        return None, True

    def close(self) -> tuple[int | None, bool]:
        tap, self._tap = self._tap, None
        if tap is not None and self._process is not None:
            self._closing = tap
            os.close(self._process.hurry)
            tap.close(_TAP_PATIENCE)
            if select.select([self._process.result], [], [], _LOG_PATIENCE)[0]:
                words = os.read(self._process.result, 100).split()
                self._closed = (int(words[0]), words[1] == b"1") if len(words) == 2 else (None, True)
        return self._closed

    def end(self) -> None:
        """Nobody waits for us any more: the end of the log may take its time on a busy machine."""
        if self._closing is not None:
            self._closing.close(_END_PATIENCE)


class _Pump(threading.Thread):
    """busy: some bytes were taken and are not delivered yet; moved: how many were delivered; goal: how many there were
    to deliver when the job ended; ended: no more come; refused: why they could not be written, where somebody should
    know."""

    def __init__(self, number: int, route: Route, log: _Log) -> None:
        super().__init__(daemon=True)
        self.route = route
        self.busy = False
        self.moved = 0
        self.goal = 0
        self.ended = False
        self.refused = 0
        self._number = number
        self._log = log

    def run(self) -> None:
        outer, real = self.route.outer, self.route.real
        try:
            while True:
                select.select([outer], [], [])
                self.busy = True  # before the read: see drained()
                data = os.read(outer, CHUNK)
                if not data:
                    break
                self._log.put(self._number, data)
                self._deliver(real, data)
                self.busy = False
        except OSError:
            # EIO: the last user of the pseudo-terminal is gone. EPIPE, ENOSPC, ...: nobody takes our bytes any more.
            pass
        finally:
            # In this order: the job must not find its pipe broken before our reader is told that no more comes.
            os.close(real)
            os.close(outer)  # the job's next write fails as it would have without us: SIGPIPE, EPIPE, EIO
            self.ended = True
            self.busy = False

    def set_goal(self) -> None:
        """What the job left running may write for ever: only what is there now is waited for. That can be a chunk too
        much when one is being read just now; then drained() says when it is enough."""
        try:
            self.goal = streams.waiting(self.route.outer) + self.moved + (CHUNK if self.busy else 0)
        except OSError:
            self.goal = self.moved

    def delivered(self) -> bool:
        return self.drained() or (self.route.terminal is None and self.moved >= self.goal)

    def drained(self) -> bool:
        """Nothing waits and nothing is under way. First the pipe, then `busy`: it is set before a byte leaves the
        pipe."""
        if self.ended:
            return True
        try:
            return streams.waiting(self.route.outer) == 0 and not self.busy
        except OSError:
            return self.ended

    def _deliver(self, real: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                count = os.write(real, view)
            except BlockingIOError:  # somebody has set O_NONBLOCK on the open file that we share
                select.select([], [real], [])
                continue
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):  # a reader or terminal that went away has its reasons
                    self.refused = error.errno or 0
                raise
            self.moved += count
            view = view[count:]


def _wait_drained(pumps: Sequence[_Pump]) -> bool:
    """True when all is delivered; False when nothing has moved for a while: then we go on in the background."""
    for pump in pumps:
        pump.set_goal()
    moved, since, quiet_since = -1, time.monotonic(), None
    begun = since
    pause = 0.0005
    while True:
        now = time.monotonic()
        total = sum(pump.moved for pump in pumps)
        if total != moved:
            moved, since, quiet_since = total, now, None
        if all(pump.delivered() for pump in pumps):
            open_terminal = any(pump.route.terminal and not pump.ended for pump in pumps)
            quiet_since = quiet_since or now
            if not open_terminal or now - quiet_since > _QUIET:
                return True
        else:
            quiet_since = None
        if now - since > PATIENCE:
            return False
        if any(pump.route.terminal for pump in pumps) and now - begun > _TERMINAL_PATIENCE:
            return True  # somebody else keeps writing to it
        time.sleep(pause)
        pause = min(pause * 2, 0.02)

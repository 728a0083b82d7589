"""`launcher.log`: what the job printed, without secrets, within bounds, written by a process of its own.

Looking for secrets takes half a second of processor time a megabyte, so it is rationed: this process may use a small
share of one core, and what comes faster than that is left out in the middle of the burst (`Tap`). The file is bounded
as well: its beginning stays, then two pieces beside it are written in turn, the older one thrown away; at the end they
are joined. So whatever dies when, the beginning and the last megabytes are on disk."""

from __future__ import annotations

import os
import select
import signal
import struct
import threading
import time
from collections import deque
from typing import NamedTuple

from ftforensics.capture.redact import redact
from ftforensics.supervise import linux, streams

NAME = "launcher.log"
HEAD = 16 << 20  # bytes
PIECE = 24 << 20
LONGEST_LINE = 64 << 10  # then it is written in parts
_QUEUE = 2 << 20
_GATHER = 0.05  # seconds
_AT_THE_END = 1 << 20  # then somebody waits for it
_SHARE = 0.05  # of one core
_CREDIT = 1.0  # seconds of processor time that may be used at once
_HEADER = struct.Struct("=II")  # stream, length; stream 0: `length` bytes were left out
_STREAMS = 4


class Tap:
    """The copier's side. put() never waits: what the log's process cannot take is dropped, oldest first."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._queue: deque[tuple[int, bytes]] = deque()
        self._held = 0
        self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def put(self, stream: int, data: bytes) -> None:
        with self._changed:
            if self._closed:
                return
            self._queue.append((stream, data))
            self._held += len(data)
            self._shorten(_QUEUE)
            if len(self._queue) == 1:
                self._changed.notify()

    def close(self, patience: float) -> None:
        """No more comes; returns when all of it is handed over, or after `patience` seconds."""
        with self._changed:
            self._closed = True
            self._shorten(_AT_THE_END)
            self._changed.notify()
        self._feeder.join(patience)

    def _shorten(self, most: int) -> None:
        while self._held > most and len(self._queue) > 1:
            _, oldest = self._queue.popleft()
            self._held -= len(oldest)
            self._dropped += len(oldest)

    def _feed(self) -> None:
        try:
            while True:
                with self._changed:
                    while not self._queue and not self._closed:
                        self._changed.wait()
                    # Lines come one by one; to wake two processes for each costs more than all the rest.
                    self._changed.wait_for(lambda: self._closed or self._held >= LONGEST_LINE, _GATHER)
                    if not self._queue:
                        break
                    stream, data = self._queue.popleft()
                    while self._queue and self._queue[0][0] == stream and len(data) < LONGEST_LINE:
                        data += self._queue.popleft()[1]
                    self._held -= len(data)
                    dropped, self._dropped = self._dropped, 0
                if dropped:
                    _write_all(self._pipe, _HEADER.pack(0, min(dropped, 0xFFFFFFFF)))
                _write_all(self._pipe, _HEADER.pack(stream, len(data)) + data)
        except OSError:
            with self._changed:  # the log's process is gone
                self._closed = True
                self._queue.clear()
        finally:
            os.close(self._pipe)


class LogProcess(NamedTuple):
    """data: what a Tap writes to; hurry: closing it says that the end is waited for; result: then gives `BYTES CUT`."""

    pid: int
    data: int
    hurry: int
    result: int


def start_log(path: str) -> LogProcess:
    """Make the file and fork the process that fills it. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    data_out, data_in = os.pipe()
    hurry_out, hurry_in = os.pipe()
    result_out, result_in = os.pipe()
    pid = os.fork()
    if pid:
        for fd in (file, data_out, hurry_out, result_in):
            os.close(fd)
        return LogProcess(pid, data_in, hurry_in, result_out)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, linux.all_signals())
        linux.set_name(b"ftf-log")
        streams.keep_only([file, data_out, hurry_out, result_in])
        log = BoundedFile(path, file)
        _keep(data_out, hurry_out, log)
        log.finish()
        os.write(result_in, f"{log.written} {int(log.cut)}".encode())
    finally:
        os._exit(0)


def pieces(path: str) -> tuple[str, str]:
    """Of a long log, beside it until the end."""
    return f"{path}.a", f"{path}.b"


class BoundedFile:
    """The file and its two pieces. written: bytes that it was given; cut: some of them are not there."""

    def __init__(self, path: str, fd: int, head: int = HEAD, piece: int = PIECE) -> None:
        self.written = 0
        self.cut = False
        self._path = path
        self._fd = fd
        self._head = head
        self._piece = piece
        self._pieces: list[tuple[str, int]] = []  # older first: (path, fd)
        self._names = 0
        self._in_piece = 0
        self._thrown = 0
        self._broken = False

    def write(self, data: bytes) -> None:
        if self._broken or not data:
            return
        try:
            if self.written + len(data) <= self._head and not self._pieces:
                _write_all(self._fd, data)
            else:
                _write_all(self._room(len(data)), data)
            self.written += len(data)
        except OSError:
            self._broken = self.cut = True  # a full disk: what is there stays

    def leave_out(self, count: int, why: str) -> None:
        self.cut = True
        self.write(f"\n[ftforensics: {count} bytes left out here: {why}]\n".encode())

    def finish(self) -> None:
        """Join the pieces."""
        try:
            if self._thrown:
                mark = f"\n[ftforensics: {self._thrown} bytes left out here: the log is kept below 64 MiB]\n"
                _write_all(self._fd, mark.encode())
            for path, fd in self._pieces:
                at = 0
                while count := os.sendfile(self._fd, fd, at, 1 << 20):
                    at += count
                os.unlink(path)
        except OSError:
            self.cut = True

    def _room(self, size: int) -> int:
        """The piece to write to."""
        if not self._pieces or self._in_piece + size > self._piece:
            if len(self._pieces) == 2:
                path, fd = self._pieces.pop(0)
                self._thrown += os.fstat(fd).st_size
                self.cut = True
                os.close(fd)
                os.unlink(path)
            path = pieces(self._path)[self._names % 2]
            self._names += 1
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._pieces.append((path, os.open(path, flags, 0o600)))
            self._in_piece = 0
        self._in_piece += size
        return self._pieces[-1][1]


def _keep(data: int, hurry: int, log: BoundedFile) -> None:
    unfinished = [b""] * _STREAMS
    begun = time.monotonic()
    hurried = False
    while header := _read_exactly(data, _HEADER.size):
        stream, length = _HEADER.unpack(header)
        if stream == 0:
            log.leave_out(length, "they came faster than a log without secrets can be made")
            continue
        text = unfinished[stream] + _read_exactly(data, length)
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 or (len(text) if len(text) > LONGEST_LINE else 0)
        unfinished[stream] = text[end:]
        log.write(_without_secrets(text[:end]))
        while not hurried:
            # Processor time used beyond the share has to be waited for.
            debt = (time.process_time() - _CREDIT) / _SHARE - (time.monotonic() - begun)
            if debt <= 0:
                break
            hurried = bool(select.select([hurry], [], [], min(debt, 60))[0])
    for text in unfinished:
        log.write(_without_secrets(text))


def _without_secrets(text: bytes) -> bytes:
    return redact(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _read_exactly(fd: int, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = os.read(fd, count - len(parts))
        if not part:
            return b""
        parts += part
    return parts


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]

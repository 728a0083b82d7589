"""The kernel's process events (connector, drivers/connector/cn_proc.c): each fork, exec and exit as it happens.

An exit event carries the wait status of a process that somebody else reaps: how torchrun's rank ended is known before
torchrun itself asks. Only in the initial pid and network namespace, and with CAP_NET_ADMIN; elsewhere `descendants`
polls.

The kernel sends the events of all processes of the machine. A socket filter (classic BPF) drops those of threads, and
everything but fork, exec and exit, before they wake us.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from typing import NamedTuple

from ftforensics.supervise import linux

_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = 1
_CN_VAL_PROC = 1
_LISTEN = 1
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_RECEIVE_BUFFER = 4 << 20

NONE, FORK, EXEC, EXIT = 0, 1, 2, 0x80000000

_NETLINK = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_CONNECTOR = struct.Struct("=IIIIHH")  # idx, val, seq, ack, length, flags
_EVENT = struct.Struct("=IIQ")  # what, cpu, nanoseconds of CLOCK_MONOTONIC
_EVENT_AT = _NETLINK.size + _CONNECTOR.size
_DATA_AT = _EVENT_AT + _EVENT.size
_GROUP_AT = _DATA_AT + 4
_WORD = struct.Struct("=I")
_ANSWER = 0.2  # seconds to wait for the kernel's acknowledgement


class ProcessEvent(NamedTuple):
    """kind: FORK, EXEC or EXIT; at: CLOCK_MONOTONIC; parent: of a fork; status: of an exit, as waitpid(2)."""

    kind: int
    at: float
    pid: int
    parent: int | None = None
    status: int | None = None


class ProcessEvents:
    """fd: readable when there are events. lost: some were dropped since the last read()."""

    def __init__(self, connection: socket.socket) -> None:
        self.fd = connection.fileno()
        self.lost = False
        self._connection = connection

    def read(self, watched: Container[int]) -> Iterator[ProcessEvent]:
        """What is waiting about these processes: their ends, execs and forks. Never blocks.

        The consumer may add a child to `watched` before it asks for the next event. Most events of a busy machine are
        about others, so that is decided by one number: the process, or a fork's parent, stands in the same place.
        """
        buffer = bytearray(256)
        while True:
            try:
                size = self._connection.recv_into(buffer)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    return
                self.lost = True
                continue
            if size > _GROUP_AT + 4 and _WORD.unpack_from(buffer, _GROUP_AT)[0] in watched:
                event = decode(bytes(buffer[:size]))
                if event is not None:
                    yield event

    def close(self) -> None:
        self._connection.close()


def listen() -> ProcessEvents:
    """Raises OSError: EPERM without the right to listen, ENOTSUP where the kernel does not answer (another
    namespace)."""
    if linux.namespace("pid") != linux.INITIAL_PID_NAMESPACE:
        # Another listener on the machine makes the kernel send them to us as well, with pids that are not ours.
        raise OSError(errno.ENOTSUP, "this is not the initial pid namespace")
    connection = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR)
    try:
        connection.bind((0, _CN_IDX_PROC))
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        _filter(connection)
        body = struct.pack("=I", _LISTEN)
        mark = int.from_bytes(os.urandom(3), "little")
        message = _CONNECTOR.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, mark, len(body), 0) + body
        connection.send(_NETLINK.pack(_NETLINK.size + len(message), 3, 0, 0, os.getpid()) + message)  # 3: NLMSG_DONE
        _acknowledged(connection, mark + 1)
        connection.setblocking(False)
    except BaseException:
        connection.close()
        raise
    return ProcessEvents(connection)


def decode(data: bytes) -> ProcessEvent | None:
    """One message; None for what is not a whole event of the three kinds."""
    if len(data) < _DATA_AT + 8:
        return None
    what, _, nanoseconds = _EVENT.unpack_from(data, _EVENT_AT)
    at = nanoseconds / 1e9
    if what == FORK and len(data) >= _DATA_AT + 16:
        _, parent, pid, group = struct.unpack_from("=IIII", data, _DATA_AT)
        return ProcessEvent(FORK, at, group, parent) if pid == group else None
    if what == EXEC:
        return ProcessEvent(EXEC, at, struct.unpack_from("=II", data, _DATA_AT)[1])
    if what == EXIT and len(data) >= _DATA_AT + 12:
        pid, group, status = struct.unpack_from("=III", data, _DATA_AT)
        return ProcessEvent(EXIT, at, group, status=status & 0xFFFF) if pid == group else None
    return None


def _acknowledged(connection: socket.socket, mark: int) -> None:
    """The kernel answers LISTEN by an event NONE that carries an error number (cn_proc_ack). Everybody gets everybody's
    answers: ours has our number."""
    until = time.monotonic() + _ANSWER
    while (left := until - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            data = connection.recv(4096)
        except TimeoutError:
            break
        if len(data) < _DATA_AT + 4 or _EVENT.unpack_from(data, _EVENT_AT)[0] != NONE:
            continue
        if _CONNECTOR.unpack_from(data, _NETLINK.size)[3] == mark:  # the sequence number is the CPU's own (send_msg)
            refused = struct.unpack_from("=I", data, _DATA_AT)[0]
            if refused:
                raise OSError(refused, os.strerror(refused))
            return
    raise OSError(errno.ENOTSUP, "the kernel sends no process events here")


def _filter(connection: socket.socket) -> None:
    """Keep: NONE; EXEC; FORK whose child, and EXIT whose process, is the main thread of its group.

    A load from a packet is big-endian and the fields are in host order, so constants are swapped; words that are only
    compared with one another need no swapping. The offset is that of the first field of the event.
    """

    def word(number: int) -> int:
        return socket.htonl(number)

    load, jump, keep, drop = 0x20, 0x15, (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)
    to_x, equal_x = (0x07, 0, 0, 0), 0x1D
    data = _DATA_AT
    program = [
        (load, 0, 0, _EVENT_AT),
        (jump, 12, 0, word(NONE)),  # -> keep
        (jump, 11, 0, word(EXEC)),  # -> keep
        (jump, 0, 4, word(FORK)),
        (load, 0, 0, data + 8),
        to_x,
        (load, 0, 0, data + 12),
        (equal_x, 6, 5, 0),
        (jump, 0, 4, word(EXIT)),
        (load, 0, 0, data),
        to_x,
        (load, 0, 0, data + 4),
        (equal_x, 1, 0, 0),
        drop,
        keep,
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    held = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(program), ctypes.addressof(held))
    connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)

"""A process that only tells which signals the job's process group got, beside its supervisor.

The supervisor sits in the job's own group, as the job itself would without us: a Ctrl-C, a shell's `kill %1`,
`timeout`, and a scheduler that signals every process of a job reach the job directly. A signal that was sent to the
supervisor alone (`kill PID`, a container's stop) has to be passed on. Which of the two it was, no field of siginfo
says, and passing on what the job got already is harmful: torchrun takes a second SIGTERM as an interruption of its own
clean-up. So: what the witness got as well, the job got as well."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterable

from ftforensics.supervise import linux, streams

NUMBER = struct.Struct("=B")
# The supervisor's question "have you told everything?": pending signals are taken in ascending order (man 7 signal),
# and this is the last one.
PROBE = signal.SIGRTMAX


def start_witness(numbers: Iterable[int]) -> tuple[int, int]:
    """(pid, descriptor). Each byte that is read from the descriptor is the number of a signal that came."""
    receiving, sending = os.pipe()
    wanted = {*numbers, PROBE}
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(sending)
        os.set_blocking(receiving, False)
        return pid, receiving
    try:
        _watch(wanted, sending, parent)
    finally:
        os._exit(0)


def _watch(wanted: set[int], sending: int, parent: int) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, linux.all_signals())
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above; pid 1 in a container is 1 on both sides
        return
    linux.set_name(b"ftf-witness")
    streams.keep_only([sending])
    while True:
        os.write(sending, NUMBER.pack(signal.sigwait(wanted)))

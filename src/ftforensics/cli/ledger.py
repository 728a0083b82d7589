"""`ftforensics ledger PID` (hidden): write down what the command of `run` runs on.

`run` starts it beside the command. It waits until the command has run long enough to be worth a line, and until its
Python has been started by whatever starts it, then writes and ends.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress

from ftforensics.capture.ledger import LEAST
from ftforensics.cli.spawned import settle, tell

DEADLINE = 15  # seconds; the default action of SIGALRM ends us


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0 written or not wanted, 1 not to be written, 2 bad usage. Nobody reads it but a test:
    the job's standard error is no place for our troubles."""
    settle()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(DEADLINE)
    os.nice(19)
    if len(arguments) != 1 or not arguments[0].isdigit():
        tell(["usage: ftforensics ledger PID"])
        return 2
    pid = int(arguments[0])
    with suppress(ProcessLookupError):
        if _lives(pid, LEAST):
            return _write(pid)
    return 0


def _lives(pid: int, seconds: float) -> bool:
    """Waits so long, or until it ends."""
    process = os.pidfd_open(pid)
    try:
        return not select.select([process], [], [], seconds)[0]
    finally:
        os.close(process)


def _write(pid: int) -> int:
    try:
        from ftforensics.host.host import Host
        from ftforensics.sources.ledger import record_begun

        record_begun(Host(), pid, os.environ)
    except Exception:
        if os.environ.get("FTFORENSICS_DEBUG"):
            raise
        return 1
    return 0

"""`ftforensics inventory PID` (hidden): what a live process has loaded, as three lines of its crash record.

The C thread of a job starts this outside the job, after install and when its libraries change, with a memfd as standard
output, and keeps the text for the handler. Standard output therefore holds whole record lines and nothing else. It ends
by itself, whatever a file system or a driver does: the kernel's alarm does not need our cooperation.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from ftforensics.cli.spawned import settle, tell

DEADLINE = 5  # seconds; the default action of SIGALRM ends us
DRIVER_TIMEOUT = 2.5  # seconds


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0 all lines written, 1 not (one line on standard error says why)."""
    settle()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(DEADLINE)
    os.nice(19)
    try:
        pid = int(arguments[0])
    except (IndexError, ValueError):
        tell(["usage: ftforensics inventory PID"])
        return 2
    try:
        _write(pid)
    except Exception as error:  # noqa: BLE001 - the job's stderr is no place for a traceback
        tell([f"ftforensics: inventory of {pid}: {type(error).__name__}: {error}"[:300]])
        return 1
    return 0


def _write(pid: int) -> None:
    # Imported here: with missing dependencies (installed with --no-deps) the answer is one line and status 1.
    from ftforensics.host.host import Host
    from ftforensics.model.basics import Gap
    from ftforensics.model.crash import Driver
    from ftforensics.sources.driver import installed_driver
    from ftforensics.sources.ledger import record_begun
    from ftforensics.sources.process_stack import stack_of_process
    from ftforensics.wire.plain_json import encode

    host = Host()
    # The driver last: it may take its time, or hang, and what was written before stays.
    stack = stack_of_process(host, pid)
    _line("libraries", encode(stack.libraries))
    _line("software", encode(stack.software))

    driver = installed_driver(host, stack.libcuda, DRIVER_TIMEOUT)
    if isinstance(driver, Gap):
        driver = Driver(note=driver.why)
    _line("driver", encode(driver))
    with suppress(Exception):  # a home that cannot be written is no matter for the job's stderr
        record_begun(host, pid, os.environ, driver=driver)


def _line(member: str, value: bytes) -> None:
    """A whole line at once: an alarm in between must not leave half of one."""
    line = b'"%b": %b,\n' % (member.encode(), value)
    while line:
        line = line[os.write(1, line) :]

"""One line in the environment ledger when the command has run for two seconds, one when it has ended.

What it runs on is found out by a process of our own beside it (`cli/ledger.py`): this one has a job to watch, with the
standard library alone."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, NamedTuple

from ftforensics.capture import environment, ledger, reporter
from ftforensics.capture.folder import run_id
from ftforensics.supervise import streams

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE = 0.5  # seconds that the end of the command may be late for the ledger's sake


class Entry(NamedTuple):
    """path: of the ledger; run: the run's id; folder: the run folder."""

    path: str
    run: str
    folder: str


def entry(environ: Mapping[str, str], folder: str | None) -> Entry | None:
    """None: it is switched off, has no place, or another process writes about this run."""
    path = ledger.keeps(environ)
    return Entry(path, run_id(environ), folder or "") if path else None


def start_recording(entry: Entry, pid: int, environ: Mapping[str, str]) -> int | None:
    """Start the process that writes `begun` about process `pid`. Its pid, None when there is no Python to run it.
    Raises OSError."""
    command = reporter.command("ledger")
    if not command:
        return None
    variables = dict(item.split(b"=", 1) for item in environment.reporter_environment(environ))
    for name, value in ((ledger.SWITCH, entry.path), (ledger.RUN, entry.run), (ledger.FOLDER, entry.folder)):
        variables[os.fsencode(name)] = os.fsencode(value)
    return os.posix_spawn(
        command[0],
        [*command, str(pid).encode()],
        variables,
        # The job's streams are not ours to write to, and not ours to keep open.
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ],
        setpgroup=0,  # a Ctrl-C is meant for the job
        setsigmask=[],
    )


def record_end(entry: Entry, pid: int, status: int, seconds: float) -> None:
    """pid: the command; status: as waitpid(2); seconds: how long it has run. Raises OSError when there can be no
    further process.

    Called while this process has one thread. The home may be a mount whose server went away, whoever looks at it waits
    for ever: so another process does, and is left behind when it has not ended within DEADLINE."""
    if seconds < ledger.LEAST:
        return
    ended, writer = os.pipe(), os.fork()
    if writer == 0:
        try:
            streams.keep_only([ended[1]])
            if os.path.exists(entry.path):
                ledger.append(entry.path, ledger.ended_by_status(entry.run, pid, status))
        finally:
            os._exit(0)
    os.close(ended[1])
    in_time = bool(select.select([ended[0]], [], [], DEADLINE)[0])
    os.close(ended[0])
    if not in_time:
        os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0 if in_time else os.WNOHANG)

"""`ftforensics crash-reporter RECORD PID` (hidden): ring 2, started from the signal handler of a dying process.

The process is alive and its threads are parked until we exit, or until the handler's patience ends (10 s, then we are
killed). Our standard error is the job's. In order: take the run folder's lock, so that eight ranks that die together
start one stack tool and not eight; have the stacks of all threads read from outside; write them to `*.helper.json`;
diagnose; print five lines, and under torchrun put one into its own summary. The record itself is complete but for
`stages` and `end`, which follow when we are gone.

Whatever fails, the record's path is printed, and never a traceback.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from ftforensics.cli.spawned import settle, tell

if TYPE_CHECKING:
    from ftforensics.model.diagnosis import Diagnosis
    from ftforensics.model.helper_report import HelperReport

DEADLINE = 8.0  # seconds; the stack tools have their own, shorter ones
FRAMES_FOR_TORCHRUN = 12  # innermost ones; its summary stands below everything that the ranks have printed
LOCK = ".reporter.lock"
RECORD_SUFFIX = ".crash.json"
HELPER_SUFFIX = ".helper.json"


class _OutOfTime(BaseException):
    """Raised by the alarm: a BaseException, so that no `except Exception` on the way swallows it."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0 told (or another reporter is at work), 1 only the record's path could be told."""
    settle()
    if len(arguments) != 2 or not arguments[1].isdigit():
        tell(["usage: ftforensics crash-reporter RECORD PID"])
        return 2
    record_path, pid = arguments[0], int(arguments[1])
    # A terminal's Ctrl-C or hang-up reaches us with the job; the handler's deadline is what ends us.
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE)
    lock = _Lock(os.path.dirname(record_path))
    if lock.held_by_another:
        return 0
    status = 0
    try:
        with suppress(Exception):  # a reporter without stacks is still one with a verdict
            write_helper_report(record_path, pid)
        lines = verdict(record_path, pid)
    except (Exception, _OutOfTime) as error:  # noqa: BLE001 - the last resort of a dying process
        lines = [f"ftforensics: crash record {_printable(record_path)}   (no verdict: {_reason(error)})"]
        status = 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    tell(lines)
    return status


def _out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise _OutOfTime(f"not finished within {DEADLINE:g} s")


class _Lock:
    """One reporter a run folder: flock(2) on a file in it, given back by the kernel when we end, however we end."""

    def __init__(self, folder: str) -> None:
        self.held_by_another = False
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(os.path.join(folder or ".", LOCK), flags, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.held_by_another = True
        except OSError:
            # A full or read-only disk, a file system without locks. Telling twice is better than not telling.
            pass


def write_helper_report(record_path: str, pid: int) -> HelperReport:
    """Read the stacks of `pid` from outside and write them beside the record.

    Raises OSError when the file cannot be written; it is never written over (O_EXCL) and appears whole (rename).
    """
    import msgspec

    from ftforensics.host.host import Host
    from ftforensics.model.basics import encode_hook
    from ftforensics.model.helper_report import HelperReport
    from ftforensics.sources.outside_stacks import outside_stacks
    from ftforensics.wire.helper_report import SCHEMA

    stacks = outside_stacks(pid, Host())
    report = HelperReport(
        schema=SCHEMA,
        record=os.path.basename(record_path),
        pid=pid,
        tool=stacks.tool,
        version=stacks.version,
        threads=stacks.threads,
        gap=stacks.gap,
        ms=round(stacks.seconds * 1000, 1),
    )
    _write_new(helper_path(record_path), msgspec.json.encode(report, enc_hook=encode_hook) + b"\n")
    return report


def helper_path(record_path: str) -> str:
    return record_path.removesuffix(RECORD_SUFFIX) + HELPER_SUFFIX


def _write_new(path: str, content: bytes) -> None:
    unfinished = f"{path}.unfinished"
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        if os.path.lexists(path):  # no race worth a hard link (which some file systems lack): we hold the folder's lock
            raise FileExistsError(path)
        os.rename(unfinished, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def verdict(record_path: str, pid: int) -> list[str]:
    """The analysis of what is there now, in five lines. torchrun is told as well, when the process is a rank of its."""
    from ftforensics.cli.analysis import diagnose_paths
    from ftforensics.report.brief import brief

    diagnosis = diagnose_paths([record_path])
    with suppress(OSError, KeyError):
        _record_end(diagnosis)
    with suppress(Exception):  # nothing may be between the person and the five lines
        tell_torchrun(diagnosis, record_path, pid)
    return brief(diagnosis, record_path)


def tell_torchrun(diagnosis: Diagnosis, record_path: str, pid: int) -> bool:
    """Write the verdict and the innermost frames where torchrun looks for the last words of the rank `pid`, which is
    still there. False: it is no rank of torchrun's, its words are there already, or we are switched off."""
    from ftforensics.capture import procfs, torchrun_summary
    from ftforensics.report import one_line
    from ftforensics.report.frames import line_of
    from ftforensics.report.phrases import root

    block = procfs.read_text(f"/proc/{pid}/environ", 1 << 20) or ""
    path = torchrun_summary.error_file(dict(entry.partition("=")[::2] for entry in block.split("\0")))
    process = root(diagnosis)
    if path is None or process is None or process.pid != pid or not torchrun_summary.is_the_rank(path, pid):
        return False
    stack = "\n".join(
        f"  at {line.name}" + (f" ({line.place})" if line.place else "") + (f" [{line.remark}]" if line.remark else "")
        for line in map(line_of, process.stack[:FRAMES_FOR_TORCHRUN])
    )
    line = one_line.render(diagnosis, os.path.dirname(record_path) or ".")
    second = process.time or time.time()
    place = torchrun_summary.where_torchrun_looks(path, pid)
    return torchrun_summary.write_new(place, torchrun_summary.content(line, stack, second))


def _record_end(diagnosis: Diagnosis) -> None:
    """In the environment ledger, where a line says that this run has begun. Raises OSError; KeyError for a signal of no
    name."""
    from ftforensics.capture import ledger
    from ftforensics.report.phrases import root

    path, run, process = ledger.place(os.environ), os.environ.get(ledger.RUN), root(diagnosis)
    if path is None or not run or process is None or not process.exit.signal or not os.path.exists(path):
        return
    number = int(signal.Signals[process.exit.signal])
    ledger.append(path, ledger.ended_line(run, "signal", pid=process.pid, signal=number, cause=diagnosis.verdict.cause))


def _reason(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return f"{error.name or 'a module'} is missing in this environment; analyze it from one that has it"
    return _printable(f"{type(error).__name__}: {error}")[:200]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)

"""A case: what was collected about one death or one job, before anybody judged it."""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Frame
from ftforensics.model.exception import ExceptionRecord
from ftforensics.model.helper_report import HelperReport
from ftforensics.model.kernel import KernelLog
from ftforensics.model.launcher import LauncherLog
from ftforensics.model.ledger import Changes
from ftforensics.model.mechanism import MechanismReading
from ftforensics.model.notice import Notice
from ftforensics.model.reading import Reading
from ftforensics.model.ring import Ring
from ftforensics.model.run import RunEvidence


class PythonFrame(msgspec.Struct, frozen=True):
    """One line of CPython's own dump. None where CPython printed `???`."""

    file: str | None = None
    line: int | None = None
    function: str | None = None


class PythonThread(msgspec.Struct, frozen=True):
    """One thread of the dump, innermost frame first. ident: pthread_self(), which is not a tid.

    truncated: CPython left frames out (100-frame limit, or the text was cut);
    notes: CPython's remarks in place of frames ("<no Python frame>", "Garbage-collecting").
    """

    ident: int | None = None
    name: str | None = None
    current: bool = False
    frames: list[PythonFrame] = []
    truncated: bool = False
    notes: list[str] = []


class CaseRecord(msgspec.Struct, frozen=True):
    """One crash record with what belongs to it. path: as the user gave it; gaps: what of the file was unreadable."""

    record: CrashRecord
    path: str | None = None
    helper: HelperReport | None = None
    gaps: list[Gap] = []


class CaseException(msgspec.Struct, frozen=True):
    """One exception record, or one of torchrun's error files. gaps: what of the file was unreadable."""

    record: ExceptionRecord
    path: str | None = None
    gaps: list[Gap] = []


class CaseRing(msgspec.Struct, frozen=True):
    """One recorder ring. alive: its process still runs on this machine (same pid, start time and boot)."""

    ring: Ring
    path: str | None = None
    alive: bool = False


class Case(msgspec.Struct, frozen=True):
    """Everything that was collected. readings: counters read now, only for input of this machine's present boot.
    given_exit: the wait status that the person gave (`--exit-code`), as -signal or code; given_pid, given_rank:
    `--pid`, `--rank`. of_other_attempts: pids that launchers name in parts of their logs that are about other attempts.
    boot_id, host, booted: of this machine, for live sources; booted: seconds since the epoch."""

    records: list[CaseRecord] = []
    rings: list[CaseRing] = []
    exceptions: list[CaseException] = []
    runs: list[RunEvidence] = []
    kernel_logs: list[KernelLog] = []
    launcher_logs: list[LauncherLog] = []
    notices: list[Notice] = []
    readings: list[Reading] = []
    given_exit: int | None = None
    given_pid: int | None = None
    given_rank: int | None = None
    boot_id: str | None = None
    host: str | None = None
    booted: float | None = None
    changes: Changes | None = None  # since the last good run of this job on this machine
    left_out: int = 0  # files that were given and could not be read: the job's log may be among them
    gaps: list[Gap] = []
    of_other_attempts: list[int] = []


class Crash(msgspec.Struct, frozen=True):
    """What a cause looks at: one record, its mechanism and its stacks, all innermost frame first.

    native: every frame of the longest trustworthy walk, symbolized as far as the files allow;
    python: the crashing thread's Python frames; gaps: what could not be seen about this process.
    """

    record: CrashRecord
    reading: MechanismReading = MechanismReading()
    native: list[Frame] = []
    python: list[PythonFrame] = []
    path: str | None = None
    helper: HelperReport | None = None
    gaps: list[Gap] = []

"""From the paths a person gives to a Case: records, rings, runs and logs, and what lies beside them.

What a file is, its content says, never its name. Nothing here waits: a FIFO or a device is refused before it is opened,
and of a huge file only the beginning is read before it is known to be ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import BinaryIO

import msgspec

from ftforensics.cli.errors import BadUsage, Failure, UnreadableInput
from ftforensics.cli.output import complain
from ftforensics.cli.progress import Progress
from ftforensics.cli.recognise import HEAD, HELPER_MARK, KNOWN, LOG_HEAD, RECORD_MARK, REPORT_MARK, Kind, recognise
from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseRecord, CaseRing
from ftforensics.model.crash import CrashRecord
from ftforensics.model.helper_report import HelperReport
from ftforensics.model.kernel import KernelLog
from ftforensics.model.launcher import LauncherLog
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.model.run import RunEvidence
from ftforensics.parsers.kernel_log import OVERRUN, read_kernel_log
from ftforensics.parsers.launcher import read_launcher_log
from ftforensics.parsers.launcher_line import local_time
from ftforensics.parsers.notices import read_notices
from ftforensics.sources.processes import is_alive
from ftforensics.wire.helper_report import read_helper_report
from ftforensics.wire.record import Loss, LossKind, NewerSchema, NotARecord, ReadRecord, read_record
from ftforensics.wire.ring import NotARing, looks_like_a_ring, read_ring
from ftforensics.wire.run_evidence import read_run_evidence

LARGEST_RECORD = 256 << 20  # bytes; the largest real one seen, 300 threads and 2,000 maps, is under 8 MB
LARGEST_HELPER = 64 << 20
LARGEST_DOCUMENT = 64 << 20  # of a scheduler or container; a log is read piece by piece and may have any size
MOST_FILES = 20_000  # of a folder; a run folder has a few a rank
LARGEST_MIXED = 16 << 20  # of a job's output with a kernel log in it
PIECE = 1 << 20
# In a folder a text counts as a log when it is called like one: it also holds scripts, notes and the data of the job.
LOG_NAMES = (".log", ".txt", ".out", ".err", ".jsonl")


class Found(msgspec.Struct, frozen=True):
    """A record that was read, with where it lies."""

    path: str
    reading: ReadRecord
    oversized: bool = False


@dataclass
class _Pile:
    """What has been read so far. empty: logs without a line; strange: logs in which nothing was known."""

    records: list[Found] = field(default_factory=list)
    rings: list[CaseRing] = field(default_factory=list)
    runs: list[RunEvidence] = field(default_factory=list)
    kernel_logs: list[KernelLog] = field(default_factory=list)
    launcher_logs: list[LauncherLog] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)

    @property
    def usable(self) -> bool:
        logs = any(log.events or log.launchers for log in self.launcher_logs)
        return bool(self.records or self.rings or self.runs or self.kernel_logs or self.notices or logs)


def gather(
    paths: Sequence[str], *, pid: int | None, rank: int | None, progress: Progress, exit_code: int | None = None
) -> Case:
    """The case in `paths`. What cannot be read is complained about, and is an error only when nothing is left.

    exit_code: how the process ended, as the person says: negative or above 128 for a signal.
    Raises UnreadableInput, or BadUsage when `pid` and `rank` leave nothing.
    """
    pile = _Pile()
    failures: list[Failure] = []
    for path in paths:
        try:
            _add_path(path, pile, progress)
        except UnreadableInput as failure:
            failures.append(failure)
    _complain(pile, failures)
    pile.kernel_logs = [_with_year(log, pile.launcher_logs, progress) for log in pile.kernel_logs]
    chosen = [one for one in pile.records if _fits(one.reading.record, pid, rank)]
    rings = [one for one in pile.rings if _ring_fits(one, pid, rank)]
    texts = pile.runs or pile.kernel_logs or pile.launcher_logs or pile.notices
    if not chosen and not rings and not texts:
        names = [_name(one.reading.record) for one in pile.records] + [_ring_name(one) for one in pile.rings]
        raise BadUsage(f"none of the records is of {_wanted(pid, rank)}", hint="there are " + ", ".join(names[:12]))
    boot_id = _boot_id()
    records = []
    for number, one in enumerate(chosen, 1):
        progress.say(f"reading what lies beside record {number} of {len(chosen)}")
        helper = _helper_of(one)
        gaps = [*_gaps_of(one), *_foreign(one.reading.record, boot_id)]
        if isinstance(helper, Gap):
            gaps.append(helper)
            helper = None
        records.append(CaseRecord(record=one.reading.record, path=one.path, helper=helper, gaps=gaps))
    return Case(
        records=records,
        rings=rings,
        runs=pile.runs,
        kernel_logs=pile.kernel_logs,
        launcher_logs=pile.launcher_logs,
        notices=pile.notices,
        given_exit=_as_status(exit_code),
        given_pid=pid,
        given_rank=rank,
        left_out=len(failures),
        gaps=[
            *(gap for run in pile.runs for gap in run.gaps),
            *(Gap(Kind.KERNEL.value, f"{path} holds no line: it excludes nothing") for path in pile.empty),
        ],
    )


def _as_status(exit_code: int | None) -> int | None:
    """A shell says 128+n for signal n, and n is never above 64 (man 1 bash, EXIT STATUS)."""
    if exit_code is None or exit_code <= 128 or exit_code > 128 + 64:
        return exit_code
    return 128 - exit_code


def _complain(pile: _Pile, failures: Sequence[Failure]) -> None:
    if not pile.usable:
        if pile.launcher_logs or pile.empty:
            failures = [*failures, *(_nothing_in(path) for path in (*pile.strange, *pile.empty))]
        for earlier in failures[:-1]:
            complain(str(earlier))
        raise failures[-1]
    for skipped in failures:
        complain(f"{skipped} (left out)")


def _nothing_in(path: str) -> UnreadableInput:
    if os.path.isfile(path) and os.stat(path).st_size < HEAD and not _head(path).strip(b" \t\r\n\0"):
        hint = "the process was ended before it could write; look for another *.crash.json beside it"
        return UnreadableInput(f"{path}: the file is empty", hint=hint)
    return UnreadableInput(
        f"{path}: nothing in it is known: no launcher's, kernel's or scheduler's line about a process that ended",
        hint="give a crash record, a ring, a run folder, the job's output or a kernel log",
    )


def _add_path(path: str, pile: _Pile, progress: Progress) -> None:
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if stat.S_ISDIR(status.st_mode):
        _add_folder(path, pile, progress)
    elif not stat.S_ISREG(status.st_mode):
        _contents(path)  # says what it is instead
    elif (status.st_dev, status.st_ino) not in pile.seen:  # the same file twice, or a file and its folder
        pile.seen.add((status.st_dev, status.st_ino))
        _add_file(path, recognise(_head(path), status.st_size), pile, progress)


def _add_file(path: str, kind: Kind, pile: _Pile, progress: Progress) -> None:
    if kind is Kind.RING:
        pile.rings.append(_ring_in(path))
    elif kind is Kind.RUN:
        run = read_run_evidence(_contents(path)[1], path)
        pile.runs.append(run)
        pile.kernel_logs += _kernel_of(run)
    elif kind is Kind.KERNEL:
        with _log_of(path, progress) as pieces:
            pile.kernel_logs.append(read_kernel_log(pieces, path=path))
        pile.notices += _notices_in(path)
        pile.launcher_logs += _job_within(path, progress)
    elif kind is Kind.JSON:
        notices = _notices_in(path)
        if notices:
            pile.notices += notices
        else:
            pile.records.append(_record_in(path))
    elif kind is Kind.LOG and not path.endswith(".crash.json"):
        with _log_of(path, progress) as pieces:
            log = read_launcher_log(pieces, path=path)
        pile.launcher_logs.append(log)
        notices = _notices_in(path)
        pile.notices += notices
        if not (log.events or log.launchers or notices):
            pile.strange.append(path)
    elif kind is Kind.BLANK and not path.endswith(".json"):
        pile.empty.append(path)
    else:
        pile.records.append(_record_in(path))


def _add_folder(folder: str, pile: _Pile, progress: Progress) -> None:
    """Everything of ours in a run folder, and its logs. What else lies there is passed over in silence."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for _, entry in zip(range(MOST_FILES), entries, strict=False))
    except OSError as error:
        raise _unreadable(folder, error) from None
    refused: list[Failure] = []
    for number, name in enumerate(names, 1):
        progress.say(f"looking through {folder}: {number} of {len(names)}")
        path = os.path.join(folder, name)
        kind = _kind_in_folder(path, name)
        if kind is None:
            continue
        try:
            _add_path(path, pile, progress)
        except UnreadableInput as failure:
            refused.append(failure)
    for skipped in refused if pile.usable else refused[:-1]:
        complain(f"{skipped} (left out)")
    if pile.usable:
        return
    pile.strange.clear()  # one line is enough
    pile.empty.clear()
    pile.launcher_logs.clear()
    if refused:
        raise refused[-1]
    raise UnreadableInput(
        f"{folder}: no crash record, ring or known log in this folder", hint=_folder_hint(folder, names)
    )


def _kind_in_folder(path: str, name: str) -> Kind | None:
    """None: not for us. A file named like a record that is empty or cut in its first line counts: it will be told."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        kind = recognise(_head(path), status.st_size)
    except (OSError, UnreadableInput):
        return Kind.RECORD if name.endswith(".crash.json") else None
    if kind in (Kind.RECORD, Kind.RING, Kind.RUN) or name.endswith(".crash.json"):
        return kind
    if kind in (Kind.KERNEL, Kind.LOG) and name.endswith(LOG_NAMES):
        return kind
    if kind is Kind.BLANK and name.startswith(("kern", "dmesg")):
        return kind
    return Kind.JSON if kind is Kind.JSON and name.endswith(".json") and _notices_in(path) else None


def _head(path: str) -> bytes:
    try:
        with _opened(path) as stream:
            return stream.read(LOG_HEAD)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _opened(path: str) -> BinaryIO:
    """Between stat and open a file can become a FIFO; O_NONBLOCK opens that too without waiting."""
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb")


@contextlib.contextmanager
def _log_of(path: str, progress: Progress) -> Iterator[Iterator[bytes]]:
    """A log piece by piece, whatever its size."""
    try:
        stream = _opened(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    with stream:
        yield _pieces(path, stream, progress)


def _pieces(path: str, stream: BinaryIO, progress: Progress) -> Iterator[bytes]:
    done, size = 0, max(os.fstat(stream.fileno()).st_size, 1)
    while True:
        try:
            piece = stream.read(PIECE)
        except OSError as error:
            raise _unreadable(path, error) from None
        if not piece:
            return
        done += len(piece)
        if size > 32 * PIECE:
            progress.say(f"reading {path}: {done * 100 // size} %")
        yield piece


def _job_within(path: str, progress: Progress) -> list[LauncherLog]:
    """A job's output to which a script has added `dmesg`: what it says of its own deaths must not be missed."""
    if os.stat(path).st_size > LARGEST_MIXED:
        return []
    with _log_of(path, progress) as pieces:
        log = read_launcher_log(pieces, path=path)
    return [log] if log.launchers else []


def _with_year(log: KernelLog, launchers: Sequence[LauncherLog], progress: Progress) -> KernelLog:
    """A syslog writes no year. The job's own log may: the two are about the same days, or the kernel's says nothing."""
    moments = [event.line.moment for event in log.events]
    walls = [local_time(event.line.text) for launcher in launchers for event in launcher.events]
    known = max((wall for wall in walls if wall is not None), default=None)
    dateless = any(moment.realtime is None and moment.monotonic is None for moment in moments)
    if log.source != "file" or log.path is None or not dateless or known is None:
        return log
    with _log_of(log.path, progress) as pieces:
        return read_kernel_log(pieces, path=log.path, year=datetime.fromtimestamp(known, timezone.utc).year)


def _notices_in(path: str) -> list[Notice]:
    """Of the whole file, or of the end of a large one: a scheduler speaks last."""
    try:
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > LARGEST_DOCUMENT:
                stream.seek(size - LARGEST_DOCUMENT)
            return read_notices(stream.read(LARGEST_DOCUMENT), path)
    except OSError:
        return []


def _ring_in(path: str) -> CaseRing:
    ring = read_ring(_contents(path)[1], os.path.basename(path))
    if isinstance(ring, NotARing):
        raise UnreadableInput(f"{path}: {ring.message}", hint="look for another *.ring beside it")
    process = ring.process
    alive = is_alive(Host(), process.pid, process.start_ticks, process.boot_id, process.pid_namespace)
    return CaseRing(ring=ring, path=path, alive=bool(alive))


def _kernel_of(run: RunEvidence) -> list[KernelLog]:
    """The kernel's lines that `run` saw go by, as a log of that boot.

    It covers the time from when it was followed to the command's end, also where the kernel said nothing. What was
    kept after the first megabyte is a choice of every line that can matter here, so only the mark of an overrun makes
    a gap.
    """
    started = run.started
    if started is None or not started.kernel_log:
        return []
    data = "\n".join(line.record for line in run.kernel).encode()
    log = read_kernel_log(data, source="kmsg", path=run.path, boot_id=started.boot_id, host=started.host)
    first = Moment(monotonic=started.at, boot_id=started.boot_id)
    last = log.last
    if run.ended is not None:
        last = Moment(monotonic=run.ended.clocks.monotonic, boot_id=started.boot_id)
    whole = not any(line.record.startswith(OVERRUN) for line in run.kernel)
    return [
        msgspec.structs.replace(
            log, first=first, last=last, gap_free=whole and started.at is not None and last is not None
        )
    ]


def _record_in(path: str) -> Found:
    head, data, oversized = _contents(path)
    reading = read_record(data)
    if isinstance(reading, NewerSchema):
        raise UnreadableInput(f"{path}: {reading.message}", hint="pip install --upgrade ftforensics")
    if isinstance(reading, NotARecord):
        raise UnreadableInput(f"{path}: {_instead(head, data, reading)}", hint=_instead_hint(path, head))
    return Found(path, reading, oversized)


def _contents(path: str) -> tuple[bytes, bytes, bool]:
    """(first bytes, all bytes, was it cut). A large file that does not begin like a record is not read whole."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableInput(
                f"{path} is {_kind(status.st_mode)}, not a file", hint="save what it gives to a file and name that"
            )
        with _opened(path) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UnreadableInput(f"{path} is not a file")
            head = stream.read(HEAD) or b""
            if status.st_size > HEAD and not (_may_be_ours(head) or looks_like_a_ring(head)):
                return head, head, False
            data = head + stream.read(LARGEST_RECORD - len(head))
            return head, data, bool(stream.read(1))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _may_be_ours(head: bytes) -> bool:
    return b"ftforensics" in head or (RECORD_MARK not in head and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"))


def _folder_hint(folder: str, names: Sequence[str]) -> str:
    if not names:
        return "it is empty: a run that ends well leaves nothing"
    runs = [name for name in names if _is_run_folder(os.path.join(folder, name))]
    if not runs:
        return "a run that ends well leaves none; a killed process cannot write one"
    # Together they would be taken for one run, with the wrong root.
    newest = max(runs, key=lambda name: os.stat(os.path.join(folder, name)).st_mtime)
    others = f" (the newest of {len(runs)} runs there)" if len(runs) > 1 else ""
    return f"try {os.path.join(folder, newest)}{others}"


def _is_run_folder(path: str) -> bool:
    try:
        names = os.listdir(path) if os.path.isdir(path) else []
    except OSError:
        return False
    return any(name.endswith((".crash.json", ".ring", ".jsonl")) for name in names)


def _helper_of(found: Found) -> HelperReport | Gap | None:
    """The report of the process started at the crash, which lies beside the record and names it and its process."""
    folder, name = os.path.split(found.path)
    expected = name.removesuffix(".json").removesuffix(".crash") + ".helper.json"
    try:
        names = [other for other in os.listdir(folder or ".") if other.endswith(".helper.json")]
    except OSError as error:
        return Gap("helper", f"the folder of the record cannot be listed: {os.strerror(error.errno or 0)}")
    # The one with the fitting name first: of 300 ranks only one file is opened then.
    for other in sorted(names, key=lambda candidate: (candidate != expected, candidate)):
        try:
            path = os.path.join(folder, other)
            if os.stat(path).st_size > LARGEST_HELPER:
                continue
            report = read_helper_report(_contents(path)[1])
        except (UnreadableInput, OSError):
            if other == expected:
                return Gap("helper", f"{other} lies beside the record and cannot be read")
            continue
        if isinstance(report, Gap):
            if other == expected:
                return report
        elif other == expected or report.record == name:
            process = found.reading.record.process
            if process is not None and None not in (process.pid, report.pid) and process.pid != report.pid:
                return Gap("helper", f"{other} is about pid {report.pid}, not {process.pid}: left out")
            return report
    return None


def _fits(record: CrashRecord, pid: int | None, rank: int | None) -> bool:
    process, job = record.process, record.job
    if pid is not None and (process is None or pid not in (process.pid, *process.nspid)):
        return False
    return rank is None or (job is not None and job.rank == rank)


def _ring_fits(one: CaseRing, pid: int | None, rank: int | None) -> bool:
    process = one.ring.process
    if pid is not None and pid not in (process.pid, *process.nspid):
        return False
    return rank is None or process.rank == rank


def _ring_name(one: CaseRing) -> str:
    process = one.ring.process
    return f"rank {process.rank} (pid {process.pid})" if process.rank is not None else f"pid {process.pid}"


def _wanted(pid: int | None, rank: int | None) -> str:
    parts = [f"pid {pid}" if pid is not None else "", f"rank {rank}" if rank is not None else ""]
    return " and ".join(part for part in parts if part)


def _name(record: CrashRecord) -> str:
    pid = f"pid {record.process.pid}" if record.process and record.process.pid is not None else "pid unknown"
    return f"rank {record.job.rank} ({pid})" if record.job and record.job.rank is not None else pid


def _gaps_of(found: Found) -> list[Gap]:
    """What of the file could not be used, in a few sentences: a cut file loses all members after the cut."""
    losses = found.reading.losses
    gaps = [
        Gap("record", f"{loss.member or 'a line'}{_line(loss)} is {loss.kind.value}{_detail(loss)}")
        for loss in losses
        if loss.kind not in (LossKind.CUT, LossKind.NOT_WRITTEN)
    ]
    gaps = gaps[:10]
    cut = [loss for loss in losses if loss.kind is LossKind.CUT]
    missing = [loss.member for loss in losses if loss.kind is LossKind.NOT_WRITTEN and loss.member]
    if found.oversized:
        gaps.append(Gap("record", f"the file is larger than {LARGEST_RECORD >> 20} MiB; the rest was not read"))
    if cut or missing:
        where = "the record breaks off" + (f" in {cut[0].member or 'a line'}{_line(cut[0])}" if cut else "")
        lost = f"; never written: {', '.join(missing)}" if missing else ""
        gaps.append(Gap("record", f"{where}; what stands before it was used{lost}"))
    return gaps


def _line(loss: Loss) -> str:
    return f" (line {loss.line})" if loss.line is not None else ""


def _detail(loss: Loss) -> str:
    return f": {loss.detail}" if loss.detail else ""


def _boot_id() -> str | None:
    try:
        return Host().read_text("/proc/sys/kernel/random/boot_id").strip()
    except Refusal:
        return None


def _foreign(record: CrashRecord, boot_id: str | None) -> list[Gap]:
    """A Gap when the record is not of this machine's present boot: then nothing that is true here now says anything."""
    theirs = record.time.boot_id if record.time else None
    if theirs is not None and theirs == boot_id:
        return []
    host = record.job.host if record.job else None
    if theirs is None:
        why = "the record names no boot, so it may be another machine's; nothing live of this machine was used"
    elif host and host == os.uname().nodename:
        why = "the record is from before this machine's last boot; nothing live of it was used"
    else:
        why = f"the record is from another machine ({host or 'name unknown'}); nothing live of this machine was used"
    return [Gap("this machine", why)]


def _instead(head: bytes, data: bytes, reading: NotARecord) -> str:
    """What the file is, as far as it can be told."""
    if not data:
        return "the file is empty"
    if HELPER_MARK in head:
        return "this is the report of the crash reporter, not a crash record"
    if REPORT_MARK in head:
        return "this is a finished report, not a crash record"
    for magic, name in KNOWN:
        if data.startswith(magic):
            return f"not a crash record: it is {name}"
    return reading.message


def _instead_hint(path: str, head: bytes) -> str:
    if HELPER_MARK in head:
        record = path.removesuffix(".helper.json") + ".crash.json"
        return f"try {record if os.path.exists(record) else 'the *.crash.json beside it'}"
    if not head:
        return "the process was ended before it could write; look for another *.crash.json beside it"
    return 'a record begins with {"schema": "ftforensics.crash/1"'


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
        (stat.S_ISDIR, "a folder"),
    )
    return next((name for test, name in kinds if test(mode)), "a special file")


def _unreadable(path: str, error: OSError | ValueError) -> UnreadableInput:
    if isinstance(error, ValueError):
        return UnreadableInput(f"{path!r} is no path: {error}")
    hint = {
        errno.ENOENT: "give a *.crash.json or a run folder; they lie in $FTFORENSICS_DIR or ./ftforensics",
        errno.EACCES: "records are readable by their owner only; try as that user, or with sudo",
        errno.ELOOP: "its symbolic links lead nowhere",
        errno.EIO: "the disk or the network file system fails; copy the file from elsewhere",
        errno.ESTALE: "the network file system lost it; look from another machine",
    }.get(error.errno or 0)
    return UnreadableInput(f"{path}: {error.strerror or error}", hint=hint)

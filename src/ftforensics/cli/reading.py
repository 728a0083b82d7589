"""One file at a time onto the pile of what was read: records, rings, runs, logs and what schedulers say.

What a file is, its content says, never its name. Nothing here waits: a FIFO or a device is refused before it is opened,
and of a huge file only the beginning is read before it is known to be ours.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import BinaryIO

import msgspec

from ftforensics.cli.complaints import no_file, no_record, unreadable
from ftforensics.cli.errors import UnreadableInput
from ftforensics.cli.folders import Listed
from ftforensics.cli.progress import Progress
from ftforensics.cli.recognise import HEAD, LOG_HEAD, RECORD_MARK, Kind, recognise
from ftforensics.host.host import Host
from ftforensics.model.basics import Gap
from ftforensics.model.case import CaseException, CaseRing
from ftforensics.model.kernel import KernelLog
from ftforensics.model.launcher import ExceptionSeen, LauncherEvent, LauncherLog, NativeText, ProcessDied, StackText
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.model.run import RunEvidence
from ftforensics.parsers.kernel_log import OVERRUN, read_kernel_log
from ftforensics.parsers.launcher import read_launcher_log
from ftforensics.parsers.launcher_line import local_time
from ftforensics.parsers.notices import read_notices
from ftforensics.parsers.output_path import output_of
from ftforensics.parsers.torchrun_error_file import read_torchrun_error_file
from ftforensics.sources.identity_here import Identity, read_identity
from ftforensics.sources.processes import is_alive
from ftforensics.wire.exception_record import read_exception_record
from ftforensics.wire.record import NewerSchema, NotARecord, ReadRecord, read_record
from ftforensics.wire.ring import NotARing, looks_like_a_ring, read_ring
from ftforensics.wire.ring_newest import newest_of_ring
from ftforensics.wire.run_evidence import read_run_evidence

LARGEST_RECORD = 256 << 20  # bytes; the largest real one seen, 300 threads and 2,000 maps, is under 8 MB
LARGEST_DOCUMENT = 64 << 20  # of a scheduler or container; a log is read piece by piece and may have any size
LARGEST_MIXED = 16 << 20  # of a job's output with a kernel log in it
PIECE = 1 << 20
# In a folder a text counts as a log when it is called like one: it also holds scripts, notes and the data of the job.
LOG_NAMES = (".log", ".txt", ".out", ".err", ".jsonl")
LOG_WHOLE_NAMES = ("stdout", "stderr")  # torchrun's, of old
# What a process prints about others has the name of a launcher; these two are the process's own words.
_OF_ONE_PROCESS = ("python", "dataloader")


class Found(msgspec.Struct, frozen=True):
    """A record that was read, with where it lies."""

    path: str
    reading: ReadRecord
    oversized: bool = False


class Input(msgspec.Struct, frozen=True):
    """A file whose beginning has been read and recognised. head: its first bytes, all of a small one."""

    path: str
    kind: Kind
    head: bytes
    size: int


@dataclass
class Pile:
    """What has been read so far. empty: logs without a line; strange: logs in which nothing was known."""

    records: list[Found] = field(default_factory=list)
    rings: list[CaseRing] = field(default_factory=list)
    exceptions: list[CaseException] = field(default_factory=list)
    runs: list[RunEvidence] = field(default_factory=list)
    kernel_logs: list[KernelLog] = field(default_factory=list)
    launcher_logs: list[LauncherLog] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)
    identity: Identity = field(default_factory=lambda: read_identity(Host()))

    @property
    def usable(self) -> bool:
        logs = any(log.events or log.launchers for log in self.launcher_logs)
        files = self.records or self.rings or self.exceptions or self.runs or self.kernel_logs or self.notices
        return bool(files or logs)

    def take(self, other: Pile) -> None:
        self.records += other.records
        self.rings += other.rings
        self.exceptions += other.exceptions
        self.runs += other.runs
        self.kernel_logs += other.kernel_logs
        self.launcher_logs += other.launcher_logs
        self.notices += other.notices
        self.empty += other.empty
        self.strange += other.strange

    def is_new(self, status: os.stat_result) -> bool:
        """False for the same file again, or a file and then its folder."""
        key = (status.st_dev, status.st_ino)
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


def opened_input(path: str, size: int) -> Input:
    """A file that somebody gave by its own path. Raises UnreadableInput."""
    head = _head(path, LOG_HEAD)
    return Input(path, recognise(head, size), head, size)


def input_in_folder(listed: Listed) -> Input | None:
    """None: not for us. A file named like a record that is empty or cut in its first line counts: it will be told."""
    path, name, size = listed.path, listed.name, listed.status.st_size
    record = name.endswith(".crash.json")
    if not record and (name.endswith((".helper.json", ".py")) or (size == 0 and not name.startswith(_KERNEL_NAMES))):
        return None
    text = record or name.endswith((*LOG_NAMES, ".json")) or name in LOG_WHOLE_NAMES or name.startswith(_KERNEL_NAMES)
    try:
        head = _head(path, LOG_HEAD if text else HEAD)
        kind = recognise(head, size)
    except UnreadableInput:
        # Also of a record nobody is told more than once: reading it fails in the same way.
        return Input(path, Kind.RECORD, b"", size) if record else None
    if kind in _OURS or record:
        return Input(path, kind, head, size)
    if kind in (Kind.KERNEL, Kind.LOG):
        wanted = text and not name.endswith(".json")
    elif kind is Kind.BLANK:
        wanted = name.startswith(_KERNEL_NAMES)
    else:
        wanted = kind is Kind.JSON and name.endswith(".json")
    return Input(path, kind, head, size) if wanted else None


_KERNEL_NAMES = ("kern", "dmesg")
_OURS = (Kind.RECORD, Kind.EXCEPTION, Kind.RING, Kind.RUN)


def add(one: Input, pile: Pile, progress: Progress, *, given: bool = True) -> None:
    """given: by its own path; JSON in a folder may be anybody's. Raises UnreadableInput."""
    path, kind = one.path, one.kind
    if kind is Kind.RING:
        pile.rings.append(_ring_in(one, pile.identity))
    elif kind is Kind.RUN:
        run = read_run_evidence(_contents(path)[1], path)
        pile.runs.append(run)
        pile.kernel_logs += _kernel_of(run)
    elif kind is Kind.EXCEPTION:
        pile.exceptions.append(_exception_in(one))
    elif kind is Kind.KERNEL:
        with _log_of(path, progress) as pieces:
            pile.kernel_logs.append(read_kernel_log(pieces, path=path))
        pile.notices += _notices_in(one)
        pile.launcher_logs += _job_within(path, progress)
    elif kind is Kind.JSON:
        _add_json(one, pile, given)
    elif kind is Kind.LOG and not path.endswith(".crash.json"):
        _add_log(one, pile, progress)
    elif kind is Kind.BLANK and not path.endswith(".json"):
        pile.empty.append(path)
    else:
        pile.records.append(_record_in(one))


def _add_json(one: Input, pile: Pile, given: bool) -> None:
    notices = _notices_in(one)
    raised = None if notices else _error_file_in(one)
    if notices:
        pile.notices += notices
    elif raised is not None:
        pile.exceptions.append(raised)
    elif given:
        pile.records.append(_record_in(one))


def _add_log(one: Input, pile: Pile, progress: Progress) -> None:
    if one.size <= len(one.head):
        log = read_launcher_log(one.head, path=one.path)
    else:
        with _log_of(one.path, progress) as pieces:
            log = read_launcher_log(pieces, path=one.path)
    notices = _notices_in(one)
    pile.launcher_logs.append(of_its_process(log))
    pile.notices += notices
    if not (log.events or log.launchers or notices):
        pile.strange.append(one.path)


def of_its_process(log: LauncherLog) -> LauncherLog:
    """The log with what its path says of the process that wrote it, unless it holds several processes' words."""
    whose = output_of(log.path) if log.path else None
    if whose is None or (whose.rank is None and whose.local_rank is None):
        return log
    ranks = {rank for event in log.events if (rank := getattr(event, "rank", None)) is not None}
    if any(name not in _OF_ONE_PROCESS for name in log.launchers) or len(ranks) > 1:
        return log
    if whose.rank is None:
        # Its own label says which rank that local rank was.
        whose = msgspec.structs.replace(whose, rank=next(iter(ranks), None))
    elif ranks and ranks != {whose.rank}:
        return log  # "rank" in the path counts something else
    log = msgspec.structs.replace(log, rank=whose.rank, local_rank=whose.local_rank, attempt=whose.attempt)
    return of_rank(log, whose.rank) if whose.rank is not None else log


def of_rank(log: LauncherLog, rank: int | None) -> LauncherLog:
    events = [_of_rank(event, rank) for event in log.events]
    return msgspec.structs.replace(log, rank=rank, events=events)


def _of_rank(event: LauncherEvent, rank: int | None) -> LauncherEvent:
    own = isinstance(event, ExceptionSeen | NativeText | StackText) or (isinstance(event, ProcessDied) and event.worker)
    return msgspec.structs.replace(event, rank=rank) if own else event


def with_year(log: KernelLog, launchers: Sequence[LauncherLog], progress: Progress) -> KernelLog:
    """A syslog writes no year. The job's own log may: the two are about the same days, or the kernel's says nothing."""
    dateless = any(event.line.moment.realtime is None and event.line.moment.monotonic is None for event in log.events)
    if log.source != "file" or log.path is None or not dateless:
        return log
    walls = [local_time(event.line.text) for launcher in launchers for event in launcher.events]
    known = max((wall for wall in walls if wall is not None), default=None)
    if known is None:
        return log
    with _log_of(log.path, progress) as pieces:
        return read_kernel_log(pieces, path=log.path, year=datetime.fromtimestamp(known, timezone.utc).year)


def whole_ring(one: CaseRing) -> CaseRing:
    """The same with all its samples; as it is when the file has gone."""
    if one.path is None:
        return one
    with contextlib.suppress(UnreadableInput):
        ring = read_ring(_contents(one.path)[1], os.path.basename(one.path))
        if not isinstance(ring, NotARing):
            return msgspec.structs.replace(one, ring=ring)
    return one


def _ring_in(one: Input, identity: Identity) -> CaseRing:
    name = os.path.basename(one.path)
    newest = _newest_in(one) if one.size > len(one.head) else None
    ring = read_ring(newest if newest is not None else _contents(one.path)[1], name)
    if isinstance(ring, NotARing):
        raise UnreadableInput(f"{one.path}: {ring.message}", hint="look for another *.ring beside it")
    process = ring.process
    alive = is_alive(
        Host(), process.pid, process.start_ticks, process.boot_id, process.pid_namespace, identity=identity
    )
    return CaseRing(ring=ring, path=one.path, alive=bool(alive))


def _newest_in(one: Input) -> bytes | None:
    """None: it is read whole."""
    try:
        with _opened(one.path) as stream:
            return newest_of_ring(partial(_at, stream.fileno(), one.head), one.size)
    except OSError:
        return None


def _at(fd: int, head: bytes, offset: int, size: int) -> bytes:
    return head[offset : offset + size] if offset + size <= len(head) else os.pread(fd, size, offset)


def _exception_in(one: Input) -> CaseException:
    record = read_exception_record(_data(one))
    if isinstance(record, Gap):
        raise UnreadableInput(f"{one.path}: {record.why}")
    return CaseException(record=record, path=one.path)


def _error_file_in(one: Input) -> CaseException | None:
    """What `@record` of torchrun wrote."""
    if one.size > LARGEST_DOCUMENT:
        return None
    record = read_torchrun_error_file(_data(one), one.path)
    return CaseException(record=record, path=one.path) if record is not None else None


def _record_in(one: Input) -> Found:
    head, data, oversized = (one.head[:HEAD], one.head, False) if _is_whole(one) else _contents(one.path)
    reading = read_record(data)
    if isinstance(reading, NewerSchema):
        raise UnreadableInput(f"{one.path}: {reading.message}", hint="pip install --upgrade ftforensics")
    if isinstance(reading, NotARecord):
        raise no_record(one.path, head, data, reading)
    return Found(one.path, reading, oversized)


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


def _job_within(path: str, progress: Progress) -> list[LauncherLog]:
    """A job's output to which a script has added `dmesg`: what it says of its own deaths must not be missed."""
    if os.stat(path).st_size > LARGEST_MIXED:
        return []
    with _log_of(path, progress) as pieces:
        log = read_launcher_log(pieces, path=path)
    return [log] if log.launchers else []


def _notices_in(one: Input) -> list[Notice]:
    """Of the whole file, or of the end of a large one: a scheduler speaks last."""
    if one.size <= len(one.head):
        return read_notices(one.head, one.path)
    try:
        with _opened(one.path) as stream:
            if one.size > LARGEST_DOCUMENT:
                stream.seek(one.size - LARGEST_DOCUMENT)
            return read_notices(stream.read(LARGEST_DOCUMENT), one.path)
    except OSError:
        return []


def _head(path: str, size: int) -> bytes:
    try:
        with _opened(path) as stream:
            return stream.read(size)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def _opened(path: str) -> BinaryIO:
    """Between stat and open a file can become a FIFO; O_NONBLOCK opens that too without waiting."""
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb", buffering=0)


@contextlib.contextmanager
def _log_of(path: str, progress: Progress) -> Iterator[Iterator[bytes]]:
    """A log piece by piece, whatever its size."""
    try:
        stream = _opened(path)
    except OSError as error:
        raise unreadable(path, error) from None
    with stream:
        yield _pieces(path, stream, progress)


def _pieces(path: str, stream: BinaryIO, progress: Progress) -> Iterator[bytes]:
    done, size = 0, max(os.fstat(stream.fileno()).st_size, 1)
    while True:
        try:
            piece = stream.read(PIECE)
        except OSError as error:
            raise unreadable(path, error) from None
        if not piece:
            return
        done += len(piece)
        if size > 32 * PIECE:
            progress.say(f"reading {path}: {done * 100 // size} %")
        yield piece


def _is_whole(one: Input) -> bool:
    return 0 < one.size <= len(one.head)


def _data(one: Input) -> bytes:
    return one.head if _is_whole(one) else _contents(one.path)[1]


def read_contents(path: str) -> bytes:
    """All bytes of one of our own files; the first 256 MiB of a larger one. Raises UnreadableInput."""
    return _contents(path)[1]


def _contents(path: str) -> tuple[bytes, bytes, bool]:
    """(first bytes, all bytes, was it cut). A large file that does not begin like a record is not read whole."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise no_file(path, status.st_mode)
        with _opened(path) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UnreadableInput(f"{path} is not a file")
            head = stream.read(HEAD) or b""
            if status.st_size > HEAD and not (_may_be_ours(head) or looks_like_a_ring(head)):
                return head, head, False
            data = head + _rest(stream, LARGEST_RECORD - len(head))
            return head, data, bool(stream.read(1))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def _rest(stream: BinaryIO, most: int) -> bytes:
    pieces = []
    while most > 0 and (piece := stream.read(min(most, 16 * PIECE))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _may_be_ours(head: bytes) -> bool:
    return b"ftforensics" in head or (RECORD_MARK not in head and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"))

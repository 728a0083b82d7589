"""From the paths a person gives to a Case: finds the crash records, reads them, adds what lies beside them.

What a file is, its content says, never its name. Nothing here waits: a FIFO or a device is refused before it is opened,
and of a huge file only the beginning is read before it is known to be ours.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

import msgspec

from ftforensics.cli.errors import BadUsage, Failure, UnreadableInput
from ftforensics.cli.output import complain
from ftforensics.cli.progress import Progress
from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.crash import CrashRecord
from ftforensics.model.helper_report import HelperReport
from ftforensics.wire.helper_report import read_helper_report
from ftforensics.wire.record import Loss, LossKind, NewerSchema, NotARecord, ReadRecord, read_record

HEAD = 4096  # bytes; the first line of a record is shorter than 100
LARGEST_RECORD = 256 << 20  # bytes; the largest real one seen, 300 threads and 2,000 maps, is under 8 MB
LARGEST_HELPER = 64 << 20
MOST_FILES = 20_000  # of a folder; a run folder has a few a rank

RECORD_MARK = b'"ftforensics.crash/'
HELPER_MARK = b'"ftforensics.helper/'
REPORT_MARK = b'"ftforensics.report/'

# What people hand over by mistake, by its first bytes.
KNOWN = (
    (b"\x7fELF", "an ELF file (a core file, program or library)"),
    (b"\x1f\x8b", "compressed by gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it first"),
    (b"\xfd7zXZ", "compressed by xz: unpack it first"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"MDMP", "a minidump"),
)


class Found(msgspec.Struct, frozen=True):
    """A record that was read, with where it lies."""

    path: str
    reading: ReadRecord
    oversized: bool = False


def gather(paths: Sequence[str], *, pid: int | None, rank: int | None, progress: Progress) -> Case:
    """The case in `paths`. What cannot be read is complained about, and is an error only when nothing is left.

    Raises UnreadableInput, or BadUsage when `pid` and `rank` leave nothing.
    """
    found: list[Found] = []
    failures: list[Failure] = []
    for path in paths:
        try:
            found.extend(_records_at(path, progress))
        except UnreadableInput as failure:
            failures.append(failure)
    if not found:
        for earlier in failures[:-1]:
            complain(str(earlier))
        raise failures[-1]
    for skipped in failures:
        complain(f"{skipped} (left out)")
    found = _without_doubles(found)
    chosen = [one for one in found if _fits(one.reading.record, pid, rank)]
    if not chosen:
        raise BadUsage(
            f"none of the records is of {_wanted(pid, rank)}",
            hint="there are " + ", ".join(_name(one.reading.record) for one in found[:12]),
        )
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
    return Case(records=records)


def _records_at(path: str, progress: Progress) -> list[Found]:
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if stat.S_ISDIR(status.st_mode):
        return _records_in(path, progress)
    return [_record_in(path)]


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
        # Between stat and open a file can become a FIFO; O_NONBLOCK opens that too without waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableInput(f"{path} is not a file")
            head = stream.read(HEAD) or b""
            if status.st_size > HEAD and not _may_be_ours(head):
                return head, head, False
            data = head + stream.read(LARGEST_RECORD - len(head))
            return head, data, bool(stream.read(1))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _may_be_ours(head: bytes) -> bool:
    return b"ftforensics" in head or (RECORD_MARK not in head and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"))


def _records_in(folder: str, progress: Progress) -> list[Found]:
    """Every record in a run folder. Its other files (rings, logs, reports) are passed over in silence."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for _, entry in zip(range(MOST_FILES), entries, strict=False))
    except OSError as error:
        raise _unreadable(folder, error) from None
    found: list[Found] = []
    refused: list[Failure] = []
    for number, name in enumerate(names, 1):
        progress.say(f"looking through {folder}: {number} of {len(names)}")
        path = os.path.join(folder, name)
        if not _looks_like_record(path, name):
            continue
        try:
            found.append(_record_in(path))
        except UnreadableInput as failure:
            refused.append(failure)
    for skipped in refused if found else refused[:-1]:
        complain(f"{skipped} (left out)")
    if found:
        return found
    if refused:
        raise refused[-1]
    raise UnreadableInput(f"{folder}: no crash record in this folder", hint=_folder_hint(folder, names))


def _looks_like_record(path: str, name: str) -> bool:
    """By content. A file named like a record that is empty or cut in its first line counts: it will be told about."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, "rb") as stream:
            head = stream.read(HEAD)
    except OSError:
        return name.endswith(".crash.json")
    return RECORD_MARK in head or name.endswith(".crash.json")


def _folder_hint(folder: str, names: Sequence[str]) -> str:
    if not names:
        return "it is empty: a run that ends well leaves nothing"
    runs = [name for name in names if _has_record(os.path.join(folder, name))]
    if not runs:
        return "a run that ends well leaves none; a killed process cannot write one"
    # Together they would be taken for one run, with the wrong root.
    newest = max(runs, key=lambda name: os.stat(os.path.join(folder, name)).st_mtime)
    others = f" (the newest of {len(runs)} runs there)" if len(runs) > 1 else ""
    return f"try {os.path.join(folder, newest)}{others}"


def _has_record(folder: str) -> bool:
    try:
        return os.path.isdir(folder) and any(name.endswith(".crash.json") for name in os.listdir(folder))
    except OSError:
        return False


def _without_doubles(found: Sequence[Found]) -> list[Found]:
    """The same file given twice, or a file and its folder, is one record."""
    seen: set[tuple[int, int]] = set()
    kept = []
    for one in found:
        try:
            status = os.stat(one.path)
        except OSError:
            kept.append(one)
            continue
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            kept.append(one)
    return kept


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

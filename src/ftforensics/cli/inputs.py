"""From the paths a person gives to a Case: records, rings, runs and logs, and what lies beside them.

What a file is and what it holds, `cli.reading` says; which files a folder has, `cli.folders`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from functools import partial

import msgspec

from ftforensics.cli.collector import without_collector
from ftforensics.cli.complaints import Complaints, no_file, nothing_below, nothing_in, unreadable
from ftforensics.cli.errors import BadUsage, Failure, UnreadableInput
from ftforensics.cli.folders import Listed, files_below
from ftforensics.cli.helpers_beside import HelpersBeside
from ftforensics.cli.output import complain
from ftforensics.cli.progress import Progress
from ftforensics.cli.reading import (
    LARGEST_RECORD,
    Found,
    Pile,
    add,
    input_in_folder,
    of_rank,
    opened_input,
    whole_ring,
    with_year,
)
from ftforensics.cli.recognise import Kind
from ftforensics.cli.shares import in_shares
from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseException, CaseRecord, CaseRing
from ftforensics.model.crash import CrashRecord
from ftforensics.model.launcher import LauncherLog
from ftforensics.sources.identity_here import Identity
from ftforensics.wire.record import Loss, LossKind

WHOLE_RINGS = 32  # of more rings than that, of those only that may tell how it began all samples are read
_FEW_HOSTS = 4  # whose names are told one by one


def gather(
    paths: Sequence[str],
    *,
    pid: int | None,
    rank: int | None,
    progress: Progress,
    exit_code: int | None = None,
    deep: bool = True,
) -> Case:
    """The case in `paths`. What cannot be read is complained about, and is an error only when nothing is left.

    exit_code: how the process ended, as the person says: negative or above 128 for a signal; deep: also what lies in
    folders of the given folders.
    Raises UnreadableInput, or BadUsage when `pid` and `rank` leave nothing.
    """
    with without_collector():
        return _gather(paths, pid, rank, progress, exit_code, deep)


def _gather(
    paths: Sequence[str], pid: int | None, rank: int | None, progress: Progress, exit_code: int | None, deep: bool
) -> Case:
    pile = Pile()
    failures: list[Failure] = []
    unread = 0
    for path in paths:
        try:
            unread += _add_path(path, pile, progress, deep)
        except UnreadableInput as failure:
            failures.append(failure)
    if exit_code is not None and not failures and not pile.usable and pile.launcher_logs:
        # How the job ended the person knows; that its output says nothing more is worth a line, and no refusal.
        failures = [nothing_in(path, empty=False) for path in pile.strange]
        _leave_out(failures)
    else:
        _complain(pile, failures)
    launcher_logs = _told_apart(pile.launcher_logs)
    kernel_logs = [with_year(log, launcher_logs, progress) for log in pile.kernel_logs]
    chosen = [one for one in pile.records if _fits(one.reading.record, pid, rank)]
    rings = [one for one in pile.rings if _ring_fits(one, pid, rank)]
    exceptions = [one for one in pile.exceptions if _exception_fits(one, pid, rank)]
    texts = pile.runs or kernel_logs or launcher_logs or pile.notices
    if not chosen and not rings and not exceptions and not texts:
        raise BadUsage(f"none of the records is of {_wanted(pid, rank)}", hint="there are " + _names(pile))
    return Case(
        records=_with_what_lies_beside(chosen, progress),
        rings=_some_whole(rings, progress),
        exceptions=exceptions,
        runs=pile.runs,
        kernel_logs=kernel_logs,
        launcher_logs=launcher_logs,
        notices=pile.notices,
        given_exit=_as_status(exit_code),
        given_pid=pid,
        given_rank=rank,
        left_out=len(failures) + unread,
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


def _complain(pile: Pile, failures: Sequence[Failure]) -> None:
    if not pile.usable:
        if pile.launcher_logs or pile.empty:
            blank = [nothing_in(path, empty=True) for path in pile.empty]
            failures = [*failures, *(nothing_in(path, empty=False) for path in pile.strange), *blank]
        for earlier in failures[:-1]:
            complain(str(earlier))
        raise failures[-1]
    _leave_out(failures)


def _leave_out(failures: Sequence[Failure]) -> None:
    for skipped in failures:
        complain(f"{skipped} (left out)")


def _add_path(path: str, pile: Pile, progress: Progress, deep: bool) -> int:
    """How many folders below it could not be read."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISDIR(status.st_mode):
        return _add_folder(path, pile, progress, deep)
    if not stat.S_ISREG(status.st_mode):
        raise no_file(path, status.st_mode)
    if pile.is_new(status):
        add(opened_input(path, status.st_size), pile, progress)
    return 0


def _add_folder(folder: str, pile: Pile, progress: Progress, deep: bool) -> int:
    """Everything of ours in a run folder, and its logs. What else lies there is passed over in silence."""
    complaints = Complaints()
    listed = [one for one in files_below(folder, complaints, progress, deep=deep) if pile.is_new(one.status)]
    progress.say(f"reading {len(listed):,} files")
    for part, failures in in_shares(listed, partial(_read, progress=progress, identity=pile.identity)):
        pile.take(part)
        for path, failure in failures:
            complaints.add(path, failure)
    for line in complaints.lines(but=None if pile.usable else complaints.last):
        complain(line)
    if pile.usable:
        return complaints.folders
    pile.strange.clear()  # one line is enough
    pile.empty.clear()
    pile.launcher_logs.clear()
    raise complaints.last or nothing_below(folder)


def _read(
    files: Sequence[Listed], progress: Progress, identity: Identity
) -> tuple[Pile, list[tuple[str, UnreadableInput]]]:
    part = Pile(identity=identity)
    failures = []
    for number, listed in enumerate(files, 1):
        progress.say(f"reading {listed.path}: {number:,} of {len(files):,}")
        try:
            one = input_in_folder(listed)
            if one is not None:
                add(one, part, progress, given=False)
        except UnreadableInput as failure:
            failures.append((listed.path, failure))
    return part, failures


def _told_apart(logs: list[LauncherLog]) -> list[LauncherLog]:
    """Two files of one name for rank 3, in folders of two nodes: then "rank" counts within a node, and whose output
    they are is not known."""
    places: dict[tuple[int, str], set[str]] = {}
    for log in logs:
        if log.rank is not None and log.path is not None and log.local_rank is None:
            places.setdefault((log.rank, os.path.basename(log.path)), set()).add(os.path.dirname(log.path))
    twice = {rank for (rank, _), folders in places.items() if len(folders) > 1}
    if not twice:
        return logs
    return [
        msgspec.structs.replace(of_rank(log, None), local_rank=log.rank)
        if log.rank in twice and log.local_rank is None
        else log
        for log in logs
    ]


def _with_what_lies_beside(chosen: Sequence[Found], progress: Progress) -> list[CaseRecord]:
    boot_id = _boot_id()
    helpers = HelpersBeside()
    several = len({one.reading.record.job.host for one in chosen if one.reading.record.job}) > _FEW_HOSTS
    records = []
    for number, one in enumerate(chosen, 1):
        progress.say(f"reading what lies beside record {number} of {len(chosen)}")
        helper = helpers.of(one)
        gaps = [*_gaps_of(one), *_foreign(one.reading.record, boot_id, nameless=several)]
        if isinstance(helper, Gap):
            gaps.append(helper)
            helper = None
        records.append(CaseRecord(record=one.reading.record, path=one.path, helper=helper, gaps=gaps))
    return records


def _some_whole(rings: list[CaseRing], progress: Progress) -> list[CaseRing]:
    """Of a large ring only the end has been read. That is enough for those that were stopped when all was over."""
    first = sorted(range(len(rings)), key=lambda number: _interest(rings[number]))[:WHOLE_RINGS]
    found = list(rings)
    for number in first:
        progress.say(f"reading {rings[number].path}")
        found[number] = whole_ring(rings[number])
    return found


def _interest(one: CaseRing) -> tuple[bool, float]:
    """What was not stopped by a signal comes first, then by time: a first failure is among the first."""
    ring = one.ring
    stopped = ring.end.how is None and any(seen.fatal for seen in ring.signals)
    pair = ring.clocks[-1] if ring.clocks else None
    at = pair.realtime + (ring.last - pair.monotonic) if pair is not None and ring.last is not None else 0.0
    return (stopped or one.alive, at)


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


def _exception_fits(one: CaseException, pid: int | None, rank: int | None) -> bool:
    """One of torchrun's own files names neither: it stays."""
    process, job = one.record.process, one.record.job
    if pid is not None and process is not None and process.pid is not None and pid not in (process.pid, *process.nspid):
        return False
    return rank is None or job is None or job.rank in (None, rank)


def _names(pile: Pile) -> str:
    names = [_name(one.reading.record) for one in pile.records] + [_ring_name(one) for one in pile.rings]
    names += [_exception_name(one) for one in pile.exceptions]
    names = list(dict.fromkeys(names))
    return ", ".join(names[:12]) + (f" and {len(names) - 12:,} more" if len(names) > 12 else "")


def _exception_name(one: CaseException) -> str:
    process, job = one.record.process, one.record.job
    pid = f"pid {process.pid}" if process is not None and process.pid is not None else "pid unknown"
    return f"rank {job.rank} ({pid})" if job is not None and job.rank is not None else pid


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


def _foreign(record: CrashRecord, boot_id: str | None, *, nameless: bool) -> list[Gap]:
    """A Gap when the record is not of this machine's present boot: then nothing that is true here now says anything.
    nameless: the records are of many machines, and one sentence is enough for them."""
    theirs = record.time.boot_id if record.time else None
    if theirs is not None and theirs == boot_id:
        return []
    host = record.job.host if record.job else None
    if theirs is None:
        why = "the record names no boot, so it may be another machine's; nothing live of this machine was used"
    elif host and host == os.uname().nodename:
        why = "the record is from before this machine's last boot; nothing live of it was used"
    else:
        name = "one of many" if nameless else host or "name unknown"
        why = f"the record is from another machine ({name}); nothing live of this machine was used"
    return [Gap("this machine", why)]

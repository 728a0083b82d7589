"""What a process wrote about itself: crash records, recorder rings, exception records; and torchrun's error files."""

from __future__ import annotations

from collections.abc import Iterable

from ftforensics.diagnose.clocks import Clocks, is_before
from ftforensics.diagnose.joining.draft import Draft, Drafts
from ftforensics.diagnose.matching import comm_of_program, other_machine
from ftforensics.model.basics import Cite
from ftforensics.model.case import CaseException, CaseRing, Crash
from ftforensics.model.exception import ExceptionRecord
from ftforensics.model.moment import Moment
from ftforensics.model.ring import Ring
from ftforensics.model.signals import signal_number
from ftforensics.sources.identity_here import INITIAL_PID_NAMESPACE

SIGINT = 2
TORCHRUN_FILE = "torchrun error file"
# Where the exception is the interpreter's last: sys.excepthook is called for what nobody caught, torchrun's @record
# raises again what it recorded, and multiprocessing (_bootstrap) and mp.spawn (_wrap) turn it into status 1.
_LAST = ("sys.excepthook", "torchrun record", "multiprocessing", TORCHRUN_FILE)
_SLACK = 2.0  # seconds between the last sample of a ring and the signal that ended its process


def add_crashes(drafts: Drafts, crashes: Iterable[Crash]) -> None:
    for crash in crashes:
        drafts.add(_from_crash(crash))


def _from_crash(crash: Crash) -> Draft:
    record = crash.record
    process, job, time = record.process, record.job, record.time
    draft = Draft(crash=crash)
    if process is not None:
        draft.pid, draft.nspid, draft.start_ticks, draft.ppid = (
            process.pid, list(process.nspid), process.start_ticks, process.ppid,
        )  # fmt: skip
        draft.names(process.thread_name)
        draft.worker_of = process.fork_of
    for thread in record.threads or []:
        draft.names(thread.name)
    if job is not None:
        draft.host, draft.rank, draft.local_rank, draft.world_size = (
            job.host, job.rank, job.local_rank, job.world_size,
        )  # fmt: skip
        draft.place(job.cgroup)
        draft.names(comm_of_program(job.exe) if job.exe else None)
    if time is not None:
        draft.boot_id = time.boot_id
        draft.when = draft.failed = Moment(time.realtime, time.monotonic, 0.0, time.boot_id)
    name = _ended_by(crash)
    if name is not None:
        draft.signal = signal_number(name) or (record.signal.number if record.signal else None)
        draft.ending.append(Cite("crash", "signal", name))
    return draft


def _ended_by(crash: Crash) -> str | None:
    """The signal in the wait status: the recorded one, but where Python was in the middle of its own abort()."""
    if crash.record.end is not None and crash.record.end.how == "abort":
        return "SIGABRT"
    return crash.record.signal.name if crash.record.signal else None


# --- the flight recorder ----------------------------------------------------------------------------------------------


def add_rings(drafts: Drafts, rings: Iterable[CaseRing]) -> None:
    """The ring of a process that ended well, or became another program, is no death."""
    for one in rings:
        end = one.ring.end
        if end.how in ("uninstall", "exec") or (end.how == "exit" and not end.code):
            continue
        _add_ring(drafts, one.ring, one.path, one.alive)


def _add_ring(drafts: Drafts, ring: Ring, path: str | None, alive: bool) -> None:
    process = ring.process
    found = drafts.same_process(process.pid, process.start_ticks, process.host, process.boot_id)
    draft = found if found is not None else drafts.add(Draft(pid=process.pid))
    draft.ring, draft.ring_path, draft.alive = ring, path, alive
    draft.nspid = draft.nspid or list(process.nspid)
    draft.start_ticks = process.start_ticks
    draft.ppid = draft.ppid or process.ppid
    draft.host = draft.host or process.host
    draft.boot_id = draft.boot_id or process.boot_id
    draft.rank = process.rank if draft.rank is None else draft.rank
    draft.local_rank = process.local_rank if draft.local_rank is None else draft.local_rank
    draft.world_size = draft.world_size or process.world_size
    draft.attempt = process.attempt if draft.attempt is None else draft.attempt
    draft.worker_of = draft.worker_of or process.worker_of or process.fork_of
    draft.uid = process.uid
    draft.names(process.comm, *ring.thread_names)
    if process.pid_namespace is not None:
        draft.initial = process.pid_namespace == INITIAL_PID_NAMESPACE
    if not draft.groups:
        draft.place(process.cgroup)
    draft.container = draft.container or process.container
    draft.cpu_soft, draft.cpu_hard = process.cpu_limit_soft, process.cpu_limit_hard
    draft.gaps += ring.gaps
    _end_of_ring(draft, ring, path or "", Clocks(ring.clocks, process.boot_id))
    drafts.learnt(draft)


def _end_of_ring(draft: Draft, ring: Ring, path: str, clocks: Clocks) -> None:
    if ring.last is not None:
        draft.earliest = clocks.at(ring.last)
    if not draft.open:
        return
    if ring.end.how == "exit" and ring.end.code:
        draft.code, draft.presumed = ring.end.code, True
        if ring.end.at is not None:
            draft.when = clocks.at(ring.end.at)
        draft.ending.append(Cite("ring", path, f"it ended by itself with status {ring.end.code}"))
        return
    fatal = next((seen for seen in reversed(ring.signals) if seen.fatal), None)
    if fatal is not None and ring.last is not None and fatal.at >= ring.last - _SLACK:
        draft.signal = fatal.number
        draft.when = draft.when if draft.when.monotonic else clocks.at(fatal.at)
        draft.failed = draft.when
        sender = f" from pid {fatal.sender.pid}" if fatal.sender else ""
        draft.ending.append(Cite("ring", path, f"{fatal.name}{sender} came; its action was the default, to end"))


# --- exceptions -------------------------------------------------------------------------------------------------------


def add_exceptions(drafts: Drafts, exceptions: Iterable[CaseException]) -> None:
    """The records that processes wrote themselves."""
    for one in exceptions:
        record, process, job = one.record, one.record.process, one.record.job
        if record.hook == TORCHRUN_FILE:
            continue
        host = job.host if job else None
        boot = record.time.boot_id if record.time else None
        start = process.start_ticks if process else None
        draft = drafts.same_process(process.pid if process else None, start, host, boot)
        if draft is None:
            draft = drafts.add(Draft(pid=process.pid if process else None))
        _apply_exception(draft, one)
        drafts.learnt(draft)


def add_error_files(drafts: Drafts, exceptions: Iterable[CaseException]) -> None:
    """torchrun's own files, which say whose they are by attempt and local rank alone. The last attempt's come first:
    lines of a log that name no attempt are about that one."""
    files = [one for one in exceptions if one.record.hook == TORCHRUN_FILE and one.record.exceptions]
    for one in sorted(files, key=lambda file: -(file.record.attempt or 0)):
        fitting = _of_error_file(drafts, one.record)
        if any(draft.raised is not None and _same_attempt(draft, one.record) for draft in fitting):
            continue  # its own record says more
        fitting = [draft for draft in fitting if draft.raised is None]
        if len(fitting) > 1:
            continue  # of several nodes, and nothing says of which
        draft = fitting[0] if fitting else drafts.add(Draft())
        _apply_exception(draft, one)
        drafts.learnt(draft)


def _of_error_file(drafts: Drafts, record: ExceptionRecord) -> list[Draft]:
    job, process = record.job, record.process
    if process is not None and process.pid is not None and (found := drafts.of_pid(process.pid)):
        return found
    if job is None:
        return []
    host = job.host
    found = drafts.of_rank(job.rank) if job.rank is not None else drafts.of_local_rank(job.local_rank)
    found = [draft for draft in found if not other_machine(draft.host, host) and _same_attempt(draft, record)]
    return [draft for draft in found if draft.worker_of is None] or found


def _same_attempt(draft: Draft, record: ExceptionRecord) -> bool:
    return None in (draft.attempt, record.attempt) or draft.attempt == record.attempt


def _apply_exception(draft: Draft, one: CaseException) -> None:
    record = one.record
    process, job, time = record.process, record.job, record.time
    draft.gaps += one.gaps
    if draft.raised is not None and not _is_better(record, draft.raised):
        return
    draft.raised, draft.raised_path = record, one.path
    if process is not None:
        draft.pid = process.pid if draft.pid is None else draft.pid
        draft.nspid = draft.nspid or list(process.nspid)
        draft.start_ticks = process.start_ticks if draft.start_ticks is None else draft.start_ticks
        draft.ppid = draft.ppid or process.ppid
        draft.worker_of = draft.worker_of or process.fork_of
        draft.names(process.thread_name)
    draft.worker_of = draft.worker_of or record.worker_of
    draft.attempt = record.attempt if draft.attempt is None else draft.attempt
    if job is not None:
        draft.host = draft.host or job.host
        draft.rank = job.rank if draft.rank is None else draft.rank
        draft.local_rank = job.local_rank if draft.local_rank is None else draft.local_rank
        draft.world_size = draft.world_size or job.world_size
        draft.names(comm_of_program(job.exe) if job.exe else None)
        if not draft.groups:
            draft.place(job.cgroup)
    if time is not None:
        draft.boot_id = draft.boot_id or time.boot_id
    _conclude(draft, record, one.path)


def _conclude(draft: Draft, record: ExceptionRecord, path: str | None) -> None:
    """What an exception that nobody caught does to its process. A thread's ends that thread alone."""
    if record.hook not in _LAST or record.thread is not None or not record.exceptions:
        return
    time = record.time
    accuracy = 1.0 if record.hook == TORCHRUN_FILE else 0.0  # torch writes whole seconds
    moment = Moment(time.realtime, time.monotonic, accuracy, time.boot_id) if time is not None else Moment()
    # What it did after a signal had come is no end of its own.
    if draft.crash is None or is_before(moment, draft.failed):
        draft.failed = moment
        if draft.untimed:
            draft.when = moment
    if not draft.open or draft.alive:
        return
    ended = record.exceptions[0]
    if record.hook == "sys.excepthook" and "KeyboardInterrupt" in (ended.type, *ended.bases):
        # CPython takes its own life by SIGINT then (Modules/main.c, exit_sigint, since 3.8).
        draft.signal = SIGINT
    else:
        draft.code = 1
    draft.presumed = True
    said = f"{ended.type}: {ended.message}" if ended.message else ended.type
    draft.ending.append(Cite("exception", path or record.hook or "", f"nobody caught {said[:200]}"))


def _is_better(record: ExceptionRecord, known: ExceptionRecord) -> bool:
    """Of several records of one process the one that ended it: a thread's is not, and of two the later is."""
    if (record.thread is None) != (known.thread is None):
        return record.thread is None
    return _clock(record) > _clock(known)


def _clock(record: ExceptionRecord) -> float:
    return record.time.monotonic if record.time is not None and record.time.monotonic is not None else float("-inf")

"""Joins what all sources say into one `Death` for each process that ended.

A crash record, a recorder ring, the supervisor's `died`, a launcher's line and a kernel record may be about the same
process. They are joined by pid, start time, boot and rank; what cannot be joined stays a death of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from ftforensics.causes.ending import signal_of
from ftforensics.diagnose.clocks import Clocks, clocks_of_run, is_before, seconds_between
from ftforensics.diagnose.counters import changes, readings_of
from ftforensics.diagnose.gpu_events import with_gpu_events
from ftforensics.diagnose.matching import (
    comm_of_program,
    locator,
    match_fault,
    match_line,
    match_oom,
    name_fits,
    other_machine,
    own_group,
    same_machine,
)
from ftforensics.diagnose.mechanism.kernel_line import read_kernel_line
from ftforensics.diagnose.outside import match_notices, match_sent, match_signals
from ftforensics.diagnose.roles import with_roles
from ftforensics.diagnose.stack_texts import with_stack_texts
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Case, Crash
from ftforensics.model.death import Death, FaultMatch, KernelMatch, Match, OomMatch, Outside, Tie
from ftforensics.model.kernel import CpuLimit, Fault, KernelEvent, KernelLog, MemoryFailure, OomKill, Oops
from ftforensics.model.launcher import (
    ExceptionSeen,
    LauncherLog,
    NativeText,
    ProcessDied,
    ProcessStarted,
    SignalledBy,
    TextLine,
)
from ftforensics.model.mechanism import MechanismReading
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.model.ring import Ring
from ftforensics.model.run import Died, RunEvidence, Usage
from ftforensics.model.signals import signal_number
from ftforensics.parsers.cgroup_path import ancestry, container_id, memory_path
from ftforensics.parsers.launcher_line import local_time, writer_pid
from ftforensics.sources.identity_here import INITIAL_PID_NAMESPACE

SIGKILL = 9
TOGETHER = 1.0  # seconds within which deaths count as one event
MOST_OTHERS = 20
MOST_BETWEEN = 16  # pids that others may take while a launcher starts one more rank
_LONGEST_MESSAGE = 5  # lines of an exception's text below its first; torch adds four of advice to a CUDA error
_TRACE = "as root, without --no-trace: ftforensics run -- COMMAND"


@dataclass
class _Draft:
    """A death while it is put together."""

    pid: int | None = None
    nspid: list[int] = field(default_factory=list)
    start_ticks: int | None = None
    ppid: int | None = None
    host: str | None = None
    boot_id: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    worker_of: int | None = None
    worker: bool = False
    comms: list[str] = field(default_factory=list)
    uid: int | None = None
    initial: bool | None = None
    container: str | None = None
    groups: list[str] = field(default_factory=list)
    signal: int | None = None
    code: int | None = None
    ending: list[Cite] = field(default_factory=list)
    given: bool = False
    watched: bool = False
    when: Moment = field(default_factory=Moment)
    earliest: Moment = field(default_factory=Moment)
    wall: float | None = None
    between: tuple[int, int] | None = None  # pids of its launcher and of the last sibling, where its own is not named
    usage: Usage | None = None
    crash: Crash | None = None
    ring: Ring | None = None
    ring_path: str | None = None
    alive: bool = False
    ended_by: list[Outside] = field(default_factory=list)
    exceptions: list[ExceptionSeen] = field(default_factory=list)
    texts: list[NativeText] = field(default_factory=list)
    first: bool = False
    direct: bool = False
    traced: bool = False
    run_group: str | None = None
    from_kernel: bool = False
    cpu_soft: int | None = None
    cpu_hard: int | None = None
    gaps: list[Gap] = field(default_factory=list)

    def names(self, *names: str | None) -> None:
        self.comms += [name for name in names if name and name not in self.comms]


def build_deaths(case: Case, crashes: Sequence[Crash]) -> list[Death]:
    """Every death of the case, in the order in which they were found. A process that ended well is none."""
    drafts: list[_Draft] = []
    for crash in crashes:
        drafts.append(_from_crash(crash))
    for ring in case.rings:
        if ring.ring.end.how in ("exit", "uninstall", "exec"):
            continue
        _add_ring(drafts, ring.ring, ring.path, ring.alive)
    for run in case.runs:
        _add_run(drafts, run)
    for log in case.launcher_logs:
        _add_launcher(drafts, log)
    if case.given_pid is not None and not any(_is_pid(draft, case.given_pid) for draft in drafts):
        drafts.append(_Draft(pid=case.given_pid))
    alone = not drafts and case.given_exit is not None
    if alone:
        # How it ended the person knows, and why its last words may say.
        drafts = _from_last_words(case) if case.given_exit == 1 else []
        drafts = [replace(one, code=None) for one in drafts] or [_Draft()]
    _apply_given(drafts, case)
    for log in case.launcher_logs if alone else []:
        for event in log.events:
            if isinstance(event, NativeText):
                _give_text(drafts, event)
    if not drafts:
        drafts = list(_from_kernel(case.kernel_logs)) or _from_notices(case.notices) or _from_last_words(case)
    return _finish(case, drafts)


# --- one source each --------------------------------------------------------------------------------------------------


def _from_crash(crash: Crash) -> _Draft:
    record = crash.record
    process, job, time = record.process, record.job, record.time
    draft = _Draft(crash=crash)
    if process is not None:
        draft.pid, draft.nspid, draft.start_ticks, draft.ppid = (
            process.pid, list(process.nspid), process.start_ticks, process.ppid,
        )  # fmt: skip
        draft.names(process.thread_name)
        draft.worker_of = process.fork_of
    for thread in record.threads or []:
        draft.names(thread.name)
    if job is not None:
        draft.host, draft.rank, draft.local_rank = job.host, job.rank, job.local_rank
        _place(draft, job.cgroup)
        draft.names(comm_of_program(job.exe) if job.exe else None)
    if time is not None:
        draft.boot_id = time.boot_id
        draft.when = Moment(time.realtime, time.monotonic, 0.0, time.boot_id)
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


def _add_ring(drafts: list[_Draft], ring: Ring, path: str | None, alive: bool) -> None:
    process = ring.process
    draft = next(
        (
            draft
            for draft in drafts
            if draft.pid == process.pid
            and (draft.start_ticks is None or draft.start_ticks == process.start_ticks)
            and (draft.boot_id is None or draft.boot_id == process.boot_id)
        ),
        None,
    )
    if draft is None:
        draft = _Draft(pid=process.pid)
        drafts.append(draft)
    draft.ring, draft.ring_path, draft.alive = ring, path, alive
    draft.nspid = draft.nspid or list(process.nspid)
    draft.start_ticks = process.start_ticks
    draft.ppid = draft.ppid or process.ppid
    draft.host = draft.host or process.host
    draft.boot_id = draft.boot_id or process.boot_id
    draft.rank = process.rank if draft.rank is None else draft.rank
    draft.local_rank = process.local_rank if draft.local_rank is None else draft.local_rank
    draft.worker_of = draft.worker_of or process.worker_of or process.fork_of
    draft.uid = process.uid
    draft.names(process.comm, *ring.thread_names)
    if process.pid_namespace is not None:
        draft.initial = process.pid_namespace == INITIAL_PID_NAMESPACE
    if not draft.groups:
        _place(draft, process.cgroup)
    draft.container = draft.container or process.container
    clocks = Clocks(ring.clocks, process.boot_id)
    if ring.last is not None:
        draft.earliest = clocks.at(ring.last)
    fatal = next((seen for seen in reversed(ring.signals) if seen.fatal), None)
    if fatal is not None and draft.signal is None and ring.last is not None and fatal.at >= ring.last - 2.0:
        draft.signal = fatal.number
        draft.when = draft.when if draft.when.monotonic else clocks.at(fatal.at)
        sender = f" from pid {fatal.sender.pid}" if fatal.sender else ""
        draft.ending.append(Cite("ring", path or "", f"{fatal.name}{sender} came; its action was the default, to end"))
    draft.cpu_soft, draft.cpu_hard = process.cpu_limit_soft, process.cpu_limit_hard
    draft.gaps += ring.gaps


def _place(draft: _Draft, lines: Sequence[str]) -> None:
    path = memory_path(lines)
    if path is not None:
        draft.groups = ancestry(path)
        draft.container = draft.container or container_id(path)


def _add_run(drafts: list[_Draft], run: RunEvidence) -> None:
    started = run.started
    boot = started.boot_id if started else None
    clocks = clocks_of_run(run)
    initial = None
    if started is not None and started.pid_namespace is not None:
        initial = started.pid_namespace == INITIAL_PID_NAMESPACE
    group = memory_path(started.cgroup) if started else None
    for died in run.died:
        if _is_ours(died):
            continue
        draft = _of_died(drafts, died, boot)
        bad = died.signal is not None or died.code not in (None, 0)
        if draft is None:
            if not bad:
                continue
            draft = _Draft(pid=died.pid)
            drafts.append(draft)
        elif not bad and died.status is not None and draft.crash is None:
            drafts.remove(draft)  # it ended well, whatever its ring lacks
            continue
        _apply_died(draft, died, run, clocks)
        draft.boot_id = draft.boot_id or boot
        draft.host = draft.host or (started.host if started else None)
        draft.initial = initial if initial is not None else draft.initial
        draft.traced = _was_traced(run, died.at)
        if died.signal == SIGKILL and not draft.traced and not any(gap.source == "trace" for gap in run.gaps):
            draft.gaps.append(Gap("trace", "signals were not traced: who sent it is not seen", _TRACE))
        draft.run_group = group
        if not draft.groups and group is not None:
            _place(draft, died.cgroup or (started.cgroup if started else []))
    for draft in drafts:
        if draft.ring is not None and draft.boot_id == boot and not draft.watched:
            draft.run_group = draft.run_group or group
            draft.traced = draft.traced or _was_traced(run, draft.ring.last)


def _is_ours(died: Died) -> bool:
    """One of the processes that this tool starts beside a job (capture.reporter.command): the supervisor inherits what
    has no parent, and a slow one ends by its own alarm."""
    if died.direct or len(died.argv) < 4 or died.argv[1] != "-I":
        return False
    return died.argv[2:4] == ["-m", "ftforensics"] or "from ftforensics.cli import main" in died.argv[3]


def _was_traced(run: RunEvidence, at: float | None) -> bool:
    """Were senders of signals traced at that time? Arming takes a moment, in which a short job may be over."""
    started = run.started
    if started is None or not started.traced or at is None:
        return False
    return started.at is not None and at > started.at


def _of_died(drafts: Iterable[_Draft], died: Died, boot: str | None) -> _Draft | None:
    for draft in drafts:
        if draft.boot_id is not None and boot is not None and draft.boot_id != boot:
            continue
        if None not in (draft.start_ticks, died.start_ticks) and draft.start_ticks != died.start_ticks:
            continue
        if draft.pid is not None and draft.pid in (died.pid, *died.nspid):
            return draft
    return None


def _apply_died(draft: _Draft, died: Died, run: RunEvidence, clocks: Clocks) -> None:
    draft.nspid = list(died.nspid) or draft.nspid
    if died.pid not in draft.nspid:
        draft.nspid = [died.pid, *draft.nspid]
    draft.watched = died.status is not None
    draft.start_ticks = draft.start_ticks or died.start_ticks
    draft.ppid = draft.ppid or died.ppid
    draft.uid = died.uid if draft.uid is None else draft.uid
    draft.rank = died.rank if draft.rank is None else draft.rank
    draft.local_rank = died.local_rank if draft.local_rank is None else draft.local_rank
    draft.names(died.comm)
    if died.cgroup:
        _place(draft, died.cgroup)
    draft.usage = died.usage
    if len(died.cpu_limit) == 2:
        draft.cpu_soft, draft.cpu_hard = (limit if limit >= 0 else None for limit in died.cpu_limit)
    draft.direct = died.direct
    draft.when = clocks.at(died.at)
    if died.status is not None:
        draft.signal, draft.code = died.signal, died.code
        how = f"signal {died.signal}" if died.signal is not None else f"status {died.code}"
        draft.ending.insert(0, Cite("run", f"{run.path or 'evidence.jsonl'} pid {died.pid}", f"it ended with {how}"))


def _is_pid(draft: _Draft, pid: int) -> bool:
    return pid == draft.pid or pid in draft.nspid


def _add_launcher(drafts: list[_Draft], log: LauncherLog) -> None:
    path = log.path or "launcher log"
    started = [event for event in log.events if isinstance(event, ProcessStarted)]
    died = [event for event in log.events if isinstance(event, ProcessDied)]
    # What names nobody may be about a process that another line names, wherever that stands.
    for end in sorted(died, key=_is_nameless):
        _add_died_line(drafts, end, path, started)
    for event in log.events:
        if isinstance(event, SignalledBy):
            _add_signalled(drafts, event, path, started)
    _place_between(drafts, died, [event for event in log.events if isinstance(event, SignalledBy)])
    for event in log.events:
        if isinstance(event, ExceptionSeen):
            _give_exception(drafts, event)
        elif isinstance(event, NativeText):
            _give_text(drafts, event)
    _give_nameless(drafts, [event for event in log.events if isinstance(event, ExceptionSeen)], died)


def _place_between(drafts: Sequence[_Draft], died: Sequence[ProcessDied], signalled: Sequence[SignalledBy]) -> None:
    """mp.spawn says not which pid its dead child had; the child was started after it and along with the siblings."""
    siblings = [event for event in signalled if event.launcher == "mp.spawn"]
    starters = {pid for event in siblings if (pid := writer_pid(event.line.text)) is not None}
    unnamed = [draft for draft in drafts if draft.pid is None and draft.local_rank is not None]
    if len(starters) == 1 and len(unnamed) == 1 and any(event.launcher == "mp.spawn" for event in died):
        unnamed[0].between = (min(starters), max(event.pid for event in siblings))
        unnamed[0].names("python")


def _is_another(draft: _Draft, event: ProcessDied) -> bool:
    """The same number on another node, as containers that start alike have it."""
    if other_machine(draft.host, event.host):
        return True
    pairs = ((draft.rank, event.rank), (draft.local_rank, event.local_rank))
    return not draft.worker and any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _is_nameless(event: ProcessDied) -> bool:
    """mp.spawn names its children by their index alone."""
    return event.pid is None and event.rank is None and event.local_rank is None


def _add_died_line(drafts: list[_Draft], event: ProcessDied, path: str, started: Sequence[ProcessStarted]) -> None:
    draft = None
    if event.pid is not None:
        draft = next((one for one in drafts if _is_pid(one, event.pid) and not _is_another(one, event)), None)
    elif event.rank is not None:
        draft = next((one for one in drafts if one.rank == event.rank and not one.worker), None)
    elif event.local_rank is not None:
        fitting = (one for one in drafts if one.local_rank == event.local_rank and not one.worker)
        draft = next(
            (one for one in fitting if (one.signal, one.code) in ((None, None), (event.signal, event.code))), None
        )
    elif event.signal is not None and any(one.signal == event.signal for one in drafts):
        return  # nobody is named, and something is known to have ended so: the same death, said once more
    if draft is None:
        if event.signal is None and _is_nameless(event) and (event.code in (None, 0) or drafts):
            return
        draft = _Draft(pid=event.pid)
        drafts.append(draft)
    cite = _line_cite(path, event.line)
    if draft.signal is None and draft.code is None:
        draft.signal, draft.code = event.signal, event.code
    if (draft.signal, draft.code) == (event.signal, event.code) or not draft.ending:
        draft.ending.append(cite)
    known = next((one for one in started if one.pid == event.pid), None)
    draft.rank = _first(draft.rank, event.rank, known.rank if known else None)
    draft.local_rank = _first(draft.local_rank, event.local_rank, known.local_rank if known else None)
    draft.host = draft.host or event.host
    draft.worker = draft.worker or event.worker
    draft.first = draft.first or event.first
    if event.program:
        draft.names(comm_of_program(event.program))
    elif event.worker:
        draft.names("pt_data_worker", "python")
    if draft.when.realtime is None and draft.when.monotonic is None:
        draft.when = event.line.moment
    if draft.wall is None:
        draft.wall = local_time(event.line.text)


def _add_signalled(drafts: list[_Draft], event: SignalledBy, path: str, started: Sequence[ProcessStarted]) -> None:
    draft = next((one for one in drafts if _is_pid(one, event.pid)), None)
    if draft is not None and event.also_dead and (draft.signal is not None or draft.code is not None):
        return  # the launcher names every rank, the one that had died too
    if draft is None:
        draft = _Draft(pid=event.pid)
        known = next((one for one in started if one.pid == event.pid), None)
        if known is not None:
            draft.rank, draft.local_rank = known.rank, known.local_rank
        drafts.append(draft)
    if draft.signal is not None and event.signal is not None and draft.signal != event.signal:
        return  # it had died of something else when the launcher got to it
    draft.ended_by.append(Outside(_line_cite(path, event.line), event.launcher, event.signal))


def _give_exception(drafts: Sequence[_Draft], event: ExceptionSeen) -> None:
    for draft in drafts:
        if event.rank is not None and draft.rank == event.rank and not draft.worker:
            draft.exceptions.append(event)


def _give_nameless(drafts: Sequence[_Draft], raised: Sequence[ExceptionSeen], died: Sequence[ProcessDied]) -> None:
    """Exceptions without a name are of the only process that ended with Python's status for one, as far as they stand
    before the line that tells of its end: a launcher raises its own behind that."""
    ended = [draft for draft in drafts if draft.signal is None and draft.code not in (None, 0) and not draft.worker]
    able = ended if [draft.code for draft in ended] == [1] else []
    told = [end.line.number for end in died if able and (end.pid is None or _is_pid(able[0], end.pid))]
    if not told or able[0].exceptions:
        return
    nameless = (event for event in raised if event.rank is None and not event.ignored and not event.peer_lost)
    able[0].exceptions += [event for event in nameless if event.line.number < min(told)]


def _give_text(drafts: Sequence[_Draft], event: NativeText) -> None:
    """A text names no process: it belongs to the rank of its prefix, else to the only one that it can be of."""
    ends_in = {"worker-fault": (7, 8, 11)}.get(event.kind, (6,))
    fitting = [draft for draft in drafts if draft.signal in ends_in]
    if event.rank is not None:
        fitting = [draft for draft in fitting if draft.rank == event.rank]
    if len(fitting) == 1:
        fitting[0].texts.append(event)


def _apply_given(drafts: Sequence[_Draft], case: Case) -> None:
    """What the person says about the end is taken for processes of which nothing else does."""
    if case.given_exit is None:
        return
    unknown = [draft for draft in drafts if draft.signal is None and draft.code is None]
    if len(unknown) != 1:
        return
    draft = unknown[0]
    draft.given = True
    if case.given_exit < 0:
        draft.signal = -case.given_exit
        text = f"signal {-case.given_exit}"
    else:
        draft.code = case.given_exit
        text = f"status {case.given_exit}"
    draft.ending.append(Cite("given", "--exit-code", text))


def _from_kernel(logs: Sequence[KernelLog]) -> Iterator[_Draft]:
    """A kernel log alone: who it says was killed or faulted."""
    for log in logs:
        for event in log.events:
            if isinstance(event, OomKill):
                draft = _Draft(pid=event.pid, uid=event.uid, host=log.host, boot_id=log.boot_id, from_kernel=True)
                draft.signal = SIGKILL
                draft.groups = ancestry(event.victim_group) if event.victim_group else []
            elif isinstance(event, Fault):
                draft = _Draft(pid=event.tid, host=log.host, boot_id=log.boot_id, from_kernel=True)
                draft.signal = 11 if event.kind == "segfault" else None
            else:
                continue
            draft.names(event.comm)
            draft.when = event.line.moment
            draft.ending.append(Cite(log.source, locator(log, event.line), event.line.text[:200]))
            yield draft


def _from_last_words(case: Case) -> list[_Draft]:
    """A job's output without a launcher in it that ends with a traceback: nobody caught that exception, and Python then
    ends with status 1 (Doc/library/sys.rst, sys.excepthook)."""
    if len(case.launcher_logs) != 1 or case.left_out:
        return []
    log = case.launcher_logs[0]
    raised = [event for event in log.events if isinstance(event, ExceptionSeen)]
    if not raised or raised[-1].ignored or log.lines - raised[-1].line.number > _LONGEST_MESSAGE:
        return []
    if raised[-1].peer_lost:  # it ended because of another process, and how that one did is not in this log
        return []
    last = raised[-1]
    handed_on = [event for event in raised[-2:-1] if event.of_worker]
    draft = _Draft(code=1, exceptions=[*handed_on, last], rank=last.rank)
    draft.when = last.line.moment
    where = f"{log.path or 'log'}:{last.line.number}"
    draft.ending.append(Cite("launcher", where, f"the log ends with a traceback: {last.line.text}"))
    return [draft]


def _from_notices(notices: Sequence[Notice]) -> list[_Draft]:
    """A container's or step's own end, where nothing else is known and only one ended badly."""
    bad = [one for one in notices if one.unit is not None and (one.exit_code or one.signal)]
    if len({one.unit for one in bad}) != 1:
        return []
    said = bad[-1]
    draft = _Draft(host=said.host, signal=said.signal, code=None if said.signal else said.exit_code)
    draft.when = said.moment
    draft.ending.append(said.cite)
    return [draft]


# --- joining ----------------------------------------------------------------------------------------------------------


def _finish(case: Case, drafts: list[_Draft]) -> list[Death]:
    deaths = [_death(draft) for draft in drafts]
    parents = {
        pid: death for death, draft in zip(deaths, drafts, strict=True) for pid in (death.pid, *draft.nspid) if pid
    }
    finished = []
    for draft, death in zip(drafts, deaths, strict=True):
        parent = parents.get(draft.ppid) if draft.ppid is not None else None
        if parent is not None and parent is not death and is_before(parent.when, death.when):
            death = msgspec.structs.replace(
                death,
                parent_died=parent.when,
                parent_cite=parent.ending[0] if parent.ending else None,
            )
        finished.append(_with_kernel(death, draft, case.kernel_logs))
    finished = _one_record_one_death(finished)
    finished = [with_gpu_events(death, case.kernel_logs) for death in finished]
    finished = with_stack_texts(with_roles(finished), case.launcher_logs)
    finished = [_with_reboot(death, case) for death in finished]
    watched = readings_of(case)
    result = []
    for death in finished:
        signals = match_signals(death, finished, case.runs)
        sent = match_sent(death, finished, case.runs)
        last, counters = changes(death, watched)
        death = msgspec.structs.replace(
            death,
            signals=signals,
            sent=sent,
            notices=match_notices(death, case.notices, finished),
            last_reading=last,
            counters=counters,
            died_together=_together(death, finished),
        )
        result.append(death)
    return result


def _death(draft: _Draft) -> Death:
    pids = list(dict.fromkeys([pid for pid in (draft.pid, *draft.nspid) if pid is not None]))
    initial = draft.initial
    if initial is False:
        host_pids: list[int] = []  # the kernel's number for it is not known
    elif draft.watched and draft.nspid:
        host_pids = draft.nspid[:1]  # as seen from the supervisor's namespace: outermost first
    else:
        host_pids = pids
    if draft.from_kernel:
        initial, host_pids = True, pids
    return Death(
        pid=draft.pid,
        host=draft.host,
        boot_id=draft.boot_id,
        rank=draft.rank,
        local_rank=draft.local_rank,
        worker_of=draft.worker_of if not draft.worker or draft.worker_of else draft.ppid,
        comms=draft.comms,
        uid=draft.uid,
        host_pids=host_pids,
        initial_namespace=initial,
        container=draft.container,
        groups=draft.groups,
        start_ticks=draft.start_ticks,
        signal=draft.signal,
        code=draft.code,
        ending=list(dict.fromkeys(draft.ending)),
        given=draft.given,
        watched=draft.watched,
        when=draft.when,
        earliest=draft.earliest,
        wall=draft.wall,
        usage=draft.usage,
        crash=draft.crash,
        ring=draft.ring,
        ring_path=draft.ring_path,
        alive=draft.alive,
        reading=draft.crash.reading if draft.crash else MechanismReading(),
        ended_by=draft.ended_by,
        exceptions=draft.exceptions,
        texts=draft.texts,
        traced=draft.traced,
        worker=draft.worker,
        first=draft.first,
        direct=draft.direct,
        ppid=draft.ppid,
        cpu_limit_soft=draft.cpu_soft,
        cpu_limit_hard=draft.cpu_hard,
        from_kernel=draft.from_kernel,
        gaps=draft.gaps,
    )


def _with_kernel(death: Death, draft: _Draft, logs: Sequence[KernelLog]) -> Death:
    oom: list[OomMatch] = []
    others: list[KernelEvent] = []
    faults: list[FaultMatch] = []
    kernel: list[KernelMatch] = []
    for log in logs:
        for event in log.events:
            cite = Cite(log.source, locator(log, event.line), event.line.text[:300])
            if isinstance(event, OomKill):
                match = match_oom(event, log, death)
                if match is not None:
                    oom.append(
                        OomMatch(event, match, cite, _block(event, log), own_group(event, death, draft.run_group))
                    )
                elif len(others) < MOST_OTHERS:
                    others.append(event)
            elif isinstance(event, Fault):
                match = match_fault(event, log, death)
                if match is not None:
                    faults.append(FaultMatch(event, match, cite))
            elif isinstance(event, Oops | MemoryFailure | CpuLimit):
                match = match_line(event.line, event.pid, event.comm, log, death)
                if match is not None:
                    kernel.append(KernelMatch(event, match, cite))
    oom = _without_doubles(oom)
    if not oom and (alone := _unnamed(death, draft, logs)) is not None:
        oom.append(alone)
        others = [event for event in others if event is not alone.kill]
    faults = _each_fault_once(faults)
    reading = death.reading
    if death.crash is None and reading.mechanism is None and len(faults) == 1 and not faults[0].match.against:
        reading = read_kernel_line(faults[0].fault, faults[0].cite)
    signal, ending, when = death.signal, list(death.ending), death.when
    if signal is None and death.code is None and oom and oom[0].match.sure:
        signal = SIGKILL
        ending.append(oom[0].cite)
    if when.monotonic is None and when.realtime is None and oom and oom[0].match.sure:
        when = _on_the_wall(oom[0].kill.line.moment, death)
    likely = oom[0].kill.pid if death.pid is None and oom and oom[0].match.tie is Tie.STRONG else None
    return msgspec.structs.replace(
        death,
        pid=death.pid if likely is None else likely,
        oom=oom,
        others_oom=others,
        faults=faults,
        kernel=kernel,
        reading=reading,
        signal=signal,
        ending=ending,
        when=when,
        kernel_log_covers=_covers(death, logs),
    )


def _unnamed(death: Death, draft: _Draft, logs: Sequence[KernelLog]) -> OomMatch | None:
    """The only OOM kill among its siblings' numbers, or of the logs, for a process to which the job's log gives no
    number of its own: "Killed" alone, or a wrapper's exit status that stands for its child's end."""
    wrapped = death.signal is None and signal_of(death) == SIGKILL
    if not (wrapped or (death.pid is None and death.signal == SIGKILL)) or death.initial_namespace is not None:
        return None
    kills = [
        (event, log)
        for log in logs
        for event in log.events
        if isinstance(event, OomKill) and not event.line.forgeable and same_machine(log, death)
    ]
    near = [(kill, log) for kill, log in kills if _is_sibling(kill, death, draft)]
    kills = near or kills
    if len({(kill.pid, kill.comm, kill.anon_rss) for kill, _ in kills}) != 1:
        return None
    kill, log = kills[0]
    place = locator(log, kill.line)
    if near:
        text = f"pid {kill.pid} is one that its launcher, pid {(draft.between or (0, 0))[0]}, may have given it"
        match = Match(Tie.STRONG, [Cite(log.source, place, text)])
    else:
        match = Match(Tie.WEAK, [], [Cite(log.source, place, "nothing but the signal ties this line to the job")])
    cite = Cite(log.source, place, kill.line.text[:300])
    return OomMatch(kill, match, cite, _block(kill, log), own_group(kill, death, None))


def _is_sibling(kill: OomKill, death: Death, draft: _Draft) -> bool:
    """Its number comes soon after its launcher's and about the siblings', and its name fits."""
    if draft.between is None or not name_fits(kill.comm, death):
        return False
    launcher, sibling = draft.between
    return launcher < kill.pid <= sibling + MOST_BETWEEN and kill.pid != sibling and sibling - launcher <= 1000


def _on_the_wall(moment: Moment, death: Death) -> Moment:
    """A kernel time of the process's own boot, with the wall-clock time that the recorder's pairs of clocks give it."""
    if moment.realtime is not None or moment.monotonic is None or death.ring is None:
        return moment
    return Clocks(death.ring.clocks, death.boot_id).at(moment.monotonic)


def _without_doubles(found: list[OomMatch]) -> list[OomMatch]:
    """The same record read from two places (kmsg and a file) is one."""
    order = {Tie.EXACT: 0, Tie.TEXT: 1, Tie.STRONG: 2, Tie.WEAK: 3}
    kept: list[OomMatch] = []
    for one in sorted(found, key=lambda match: (order[match.match.tie], len(match.match.against))):
        if not any(_same_record(one.kill, other.kill) for other in kept):
            kept.append(one)
    return kept


def _each_fault_once(found: list[FaultMatch]) -> list[FaultMatch]:
    """`run` followed the log, and the log was read again afterwards."""
    kept: list[FaultMatch] = []
    for one in sorted(found, key=lambda match: len(match.match.against)):
        if not any(_same_fault(one.fault, other.fault) for other in kept):
            kept.append(one)
    return kept


def _same_fault(one: Fault, other: Fault) -> bool:
    if (one.tid, one.kind, one.address, one.ip, one.sp) != (other.tid, other.kind, other.address, other.ip, other.sp):
        return False
    return _may_be_one_time(one.line.moment, other.line.moment)


def _same_record(one: OomKill, other: OomKill) -> bool:
    if (one.pid, one.comm, one.total_vm, one.anon_rss) != (other.pid, other.comm, other.total_vm, other.anon_rss):
        return False
    return _may_be_one_time(one.line.moment, other.line.moment)


def _may_be_one_time(one: Moment, other: Moment) -> bool:
    apart = seconds_between(one, other)
    return apart is None or abs(apart[0]) <= 1.0 + apart[1]


def _block(kill: OomKill, log: KernelLog) -> list[Cite]:
    lines = [line for line in (kill.limits, kill.constraint) if line is not None]
    return [Cite(log.source, locator(log, line), line.text[:300]) for line in lines]


def _one_record_one_death(deaths: list[Death]) -> list[Death]:
    """A record that fits several processes equally well proves nothing about any of them, and a process that several
    records fit was killed once."""
    holders: dict[int, list[tuple[int, Match]]] = {}  # by record: which deaths it fits, and how
    for index, death in enumerate(deaths):
        for one in death.oom:
            holders.setdefault(id(one.kill), []).append((index, one.match))
    enough = _enough_records(deaths, holders)
    result = []
    for index, death in enumerate(deaths):
        oom = []
        for one in death.oom:
            others = [match for holder, match in holders[id(one.kill)] if holder != index]
            if not one.match.sure and any(match.sure for match in others):
                continue  # it is surely another's
            rivals = any(match.tie is one.match.tie for match in others)
            several = len(death.oom) > 1 and one.match.tie is not Tie.EXACT
            if (rivals and one.match.tie is not Tie.EXACT) or several:
                one = msgspec.structs.replace(
                    one, match=_weaker(one.match, rivals, several, rivals and index in enough)
                )
            oom.append(one)
        result.append(msgspec.structs.replace(death, oom=oom))
    return result


def _enough_records(deaths: Sequence[Death], holders: dict[int, list[tuple[int, Match]]]) -> set[int]:
    """The deaths among which every one can have a record of its own. n records and n processes that are alike: that
    each was killed so is known, which record is whose is not. The kernel leaves records out when there are many, so
    that one in ten may lack."""
    found: set[int] = set()
    left = {index for index, death in enumerate(deaths) if death.oom}
    while left:
        alike, records, waiting = set[int](), set[int](), [left.pop()]
        while waiting:
            index = waiting.pop()
            alike.add(index)
            for record in {id(one.kill) for one in deaths[index].oom} - records:
                records.add(record)
                reached = {holder for holder, _ in holders[record]} & left
                left -= reached
                waiting += reached
        if len(records) >= 0.9 * len(alike):
            found |= alike
    return found


def _weaker(match: Match, rivals: bool, several: bool, enough: bool) -> Match:
    tie = Tie.STRONG if match.tie in (Tie.TEXT, Tie.STRONG) and not rivals else match.tie
    if rivals:
        tie = Tie.STRONG if enough and match.tie is not Tie.WEAK else Tie.WEAK
    against = list(match.against)
    if several and not enough:
        against.append(Cite("case", "", "several kernel records fit this process"))
    return Match(tie, match.why, against)


def _covers(death: Death, logs: Sequence[KernelLog]) -> bool | None:
    """True only for the kernel's own log of this boot with continuous record numbers from before the end to after."""
    for log in logs:
        if not log.gap_free or log.boot_id is None or log.boot_id != death.boot_id or log.first is None:
            continue
        start = seconds_between(log.first, death.earliest if death.earliest.monotonic else death.when)
        end = seconds_between(death.when, log.last) if log.last is not None else None
        if start is not None and start[0] >= 0 and (log.live or (end is not None and end[0] >= 0)):
            return True
    return None


def _with_reboot(death: Death, case: Case) -> Death:
    """The machine it ran on has been started again, and nobody saw the end."""
    if death.signal is not None or death.code is not None or death.ring is None:
        return death
    if None in (death.boot_id, case.boot_id, case.host) or death.boot_id == case.boot_id or death.host != case.host:
        return death
    cite = Cite("boot", "/proc/sys/kernel/random/boot_id", f"{case.boot_id} now, {death.boot_id} then")
    after = None
    if case.booted is not None and death.earliest.realtime is not None:
        after = case.booted - death.earliest.realtime
    return msgspec.structs.replace(death, rebooted=cite, rebooted_after=after)


def _together(death: Death, deaths: Sequence[Death]) -> int:
    count = 1
    for other in deaths:
        if other is death or other.signal != SIGKILL:
            continue
        apart = seconds_between(death.when, other.when)
        if apart is not None and abs(apart[0]) <= TOGETHER + apart[1]:
            count += 1
    return count


def _line_cite(path: str, line: TextLine) -> Cite:
    return Cite("launcher", f"{path}:{line.number}", line.text)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)

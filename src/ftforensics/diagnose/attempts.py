"""One input, several attempts of the same job: a launcher that restarts it, a folder with the runs of several days.

Attempts of one job do not overlap in time, and a later one has the ranks of the earlier one again. So whatever the
folders are called: processes that lived at the same time are of one attempt (several nodes, or one `run` a rank), and
one that began when a process with its place in the job was over is of the next. Where a launcher counts its restarts
that number decides.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from ftforensics.diagnose.clocks import Clocks, clocks_of_run
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseException, CaseRecord, CaseRing
from ftforensics.model.crash import Job, Process, Time
from ftforensics.model.diagnosis import Attempt as AttemptReport
from ftforensics.model.diagnosis import Diagnosis, ProcessReport
from ftforensics.model.launcher import (
    AttemptBegan,
    LauncherEvent,
    LauncherLog,
    ProcessDied,
    ProcessStarted,
    SignalledBy,
)
from ftforensics.model.run import Died, RunEvidence

_LAST_WORDS = 12  # lines that ranks may print after torchrun has noticed a failure
MOST_ATTEMPTS = 50  # that are looked at: a job that restarts for ever has the same story to tell

_Item = CaseRecord | CaseRing | CaseException | RunEvidence


class Attempt(msgspec.Struct, frozen=True):
    """name: how a person would call it; path: what `analyze` takes for it alone, None when it shares its files."""

    case: Case
    name: str
    began: float | None = None
    ended: float | None = None
    path: str | None = None


class _Place(msgspec.Struct, frozen=True):
    """A place in the job, of which an attempt has one. rank None: it is no rank; run: it is a supervisor, told
    apart from others by its surroundings."""

    host: str | None
    rank: int | None = None
    run: str | None = None


class _Launch(msgspec.Struct, frozen=True):
    """Whose restarts are counted: a launcher by its pid, or the run that it is under. restart: its count."""

    host: str | None = None
    boot_id: str | None = None
    pid: int | None = None
    run: str | None = None
    restart: int | None = None

    @property
    def launcher(self) -> _Launch:
        """The same at any count."""
        return msgspec.structs.replace(self, restart=None)


@dataclass
class _Life:
    """One process, or one supervised run, with the time in which it lived, seconds since the epoch."""

    item: _Item
    path: str | None
    began: float | None
    ended: float | None
    place: _Place | None  # no two of one attempt have the same one
    launch: _Launch | None = None
    process: tuple[str | None, int, int] | None = None  # boot, pid and start: it has no more than one life


@dataclass
class _Group:
    lives: list[_Life] = field(default_factory=list)
    ended: float = float("-inf")
    places: set[_Place] = field(default_factory=set)
    processes: set[tuple[str | None, int, int]] = field(default_factory=set)

    def add(self, life: _Life) -> None:
        self.lives.append(life)
        self.ended = max(self.ended, *(time for time in (life.began, life.ended) if time is not None), float("-inf"))
        if life.place is not None:
            self.places.add(life.place)
        if life.process is not None:
            self.processes.add(life.process)


def split(case: Case) -> list[Attempt]:
    """The case's attempts, the last one at the end; a case with one attempt, or without any clue, is itself."""
    if case.given_pid is not None:
        return [Attempt(case, "")]
    lives = [*_lives(case)]
    groups = _groups(lives)
    logs = [part for log in case.launcher_logs for part in _parts(log)]
    if len(groups) <= 1 and len(logs) == len(case.launcher_logs):
        return [Attempt(case, "")]
    if not groups:
        return _of_logs(case)
    return _of_groups(case, groups)


def several_jobs(case: Case) -> Gap | None:
    """Says so where two runs of one attempt, so of the same time, each saw an end of the same rank on one machine: no
    job has a rank twice. A run inside a run saw the very processes that the outer one did."""
    saw: dict[tuple[object, ...], RunEvidence] = {}
    for run in case.runs:
        boot = run.started.boot_id if run.started is not None else None
        ranks = {died.rank for died in run.died if died.rank is not None and died.comm != "pt_data_worker"}
        for rank in sorted(ranks):
            other = saw.setdefault((boot, rank), run)
            if other is not run and other.path != run.path and boot is not None and not _saw_the_same(other, run):
                both = f"{other.path} and {run.path} each saw rank {rank} end"
                return Gap("case", f"two jobs of the same time are in this input: {both}", "ftforensics analyze FOLDER")
    return None


def _saw_the_same(one: RunEvidence, other: RunEvidence) -> bool:
    """Did both see some process of a rank end?"""
    seen = {(died.rank, died.pid) for died in one.died if died.rank is not None}
    return any((died.rank, died.pid) in seen for died in other.died)


# --- by what recorded itself ------------------------------------------------------------------------------------------


def _lives(case: Case) -> Iterable[_Life]:
    for record in case.records:
        yield _life(record, record.record.time, record.record.process, record.record.job, record.path)
    for raised in case.exceptions:
        one = raised.record
        life = _life(raised, one.time, one.process, one.job, raised.path)
        if one.attempt is not None and life.launch is not None:
            life.launch = msgspec.structs.replace(life.launch, restart=one.attempt)
        yield life
    for ring in case.rings:
        process, clocks = ring.ring.process, Clocks(ring.ring.clocks, ring.ring.process.boot_id)
        times = [clocks.at(at).realtime for at in (ring.ring.installed, ring.ring.last) if at is not None]
        known = [time for time in times if time is not None]
        child = process.worker_of or process.fork_of
        place = None if child else _Place(process.host, process.rank)
        launch = _Launch(process.host, process.boot_id, process.ppid, restart=process.attempt)
        ranked = launch if process.rank is not None else None
        same = (process.boot_id, process.pid, process.start_ticks) if process.start_ticks is not None else None
        yield _Life(ring, ring.path, min(known, default=None), max(known, default=None), place, ranked, same)
    for run in case.runs:
        yield from _of_run(run)


def _life(
    item: CaseRecord | CaseException, time: Time | None, process: Process | None, job: Job | None, path: str | None
) -> _Life:
    began = ended = None
    if time is not None and time.realtime is not None:
        began = ended = time.realtime
        if time.installed is not None and time.monotonic is not None:
            began = ended - (time.monotonic - time.installed)
    host, rank = (job.host, job.rank) if job is not None else (None, None)
    child = process is not None and process.fork_of is not None
    place = None if child else _Place(host, rank)
    variables = job.environment if job is not None else []
    restart = next((int(one.value) for one in variables if _counts(one.name) and one.value.isdecimal()), None)
    ppid, boot = process.ppid if process else None, time.boot_id if time else None
    launch = _Launch(host, boot, ppid, restart=restart) if rank is not None else None
    known = process is not None and process.pid is not None and process.start_ticks is not None
    same = (boot, process.pid, process.start_ticks) if process is not None and known else None
    return _Life(item, path, began, ended, place, launch, same)  # type: ignore[arg-type]


def _counts(name: str) -> bool:
    return name == "TORCHELASTIC_RESTART_COUNT"


def _of_run(run: RunEvidence) -> Iterable[_Life]:
    """A `run` whose launcher restarted the job holds several attempts: one for each number of its ranks."""
    began = run.started.clocks.realtime if run.started else None
    ended = run.ended.clocks.realtime if run.ended else None
    host = run.started.host if run.started else None
    place = _Place(host, run="\n".join(run.started.environment) if run.started else run.path or "")
    counts = sorted({died.attempt for died in run.died if died.attempt is not None})
    if len(counts) < 2 or run.started is None:
        yield _Life(run, run.path, began, ended, place)
        return
    clocks = clocks_of_run(run)
    begin = began
    for count in counts:
        final = count == counts[-1]
        part = [died for died in run.died if died.attempt == count or _is_of_attempt(died, run, count, final)]
        end = clocks.at(max(died.at for died in run.died if died.attempt == count)).realtime
        one = msgspec.structs.replace(run, died=part, ended=run.ended if final else None)
        launch = _Launch(run=run.path, restart=count)
        yield _Life(one, run.path, begin, ended if final else end, place, launch)
        begin = end


def _is_of_attempt(died: Died, run: RunEvidence, count: int, final: bool) -> bool:
    """Of what names no attempt, did it end while this one's ranks did? The command itself ended with the last."""
    if died.attempt is not None:
        return False
    if died.direct:
        return final
    earlier = [one.at for one in run.died if one.attempt is not None and one.attempt < count]
    own = [one.at for one in run.died if one.attempt == count]
    return (not earlier or died.at > max(earlier)) and (final or died.at <= max(own))


def _groups(lives: Sequence[_Life]) -> list[_Group]:
    """Oldest first. What has no time goes to the last one."""
    groups: list[_Group] = []
    counted: dict[_Launch, _Group] = {}
    launched: dict[_Launch, list[_Group]] = {}  # by the launcher, whatever its count
    for life in sorted((one for one in lives if one.began is not None), key=lambda one: one.began or 0.0):
        key = life.launch if life.launch is not None and life.launch.restart is not None else None
        group = counted.get(key) if key is not None else None
        if group is None:
            group = groups[-1] if groups else None
            if group is None or _is_next(life, group, launched.get(key.launcher, []) if key is not None else []):
                group = _Group()
                groups.append(group)
        if key is not None and key not in counted:
            counted[key] = group
            launched.setdefault(key.launcher, []).append(group)
        group.add(life)
    timeless = [life for life in lives if life.began is None]
    if timeless and not groups:
        groups.append(_Group())
    for life in timeless:
        groups[-1].add(life)
    return groups


def _is_next(life: _Life, group: _Group, counted: Sequence[_Group]) -> bool:
    """Is it of the attempt after this group? counted: those that its launcher started at other counts."""
    if any(known is group for known in counted):
        return True
    if life.process in group.processes:
        return False
    assert life.began is not None
    return life.began > group.ended and life.place is not None and life.place in group.places


def _of_groups(case: Case, groups: Sequence[_Group]) -> list[Attempt]:
    logs = _shared_out(case, groups)
    attempts = []
    for index, group in enumerate(groups):
        items = [life.item for life in group.lives]
        paths = {life.path for life in group.lives if life.path is not None}
        runs = [item for item in items if isinstance(item, RunEvidence)]
        part = msgspec.structs.replace(
            case,
            records=[item for item in items if isinstance(item, CaseRecord)],
            rings=[item for item in items if isinstance(item, CaseRing)],
            exceptions=[item for item in items if isinstance(item, CaseException)],
            runs=runs,
            kernel_logs=[log for log in case.kernel_logs if log.path in paths or not _is_of_a_run(log.path, case)],
            launcher_logs=logs[index],
        )
        # A launcher that counts its attempts lives through all of them.
        counted = [life for life in group.lives if life.launch and life.launch.restart is not None] or group.lives
        times = [time for life in counted for time in (life.began, life.ended) if time is not None]
        folders = {os.path.dirname(path) for path in paths}
        own = folders.pop() if len(folders) == 1 else None
        alone = own is not None and not any(
            os.path.dirname(life.path) == own
            for other in groups
            if other is not group
            for life in other.lives
            if life.path is not None
        )
        restarts = {life.launch.restart for life in group.lives if life.launch and life.launch.restart is not None}
        name = f"attempt {index}" if not restarts or len(groups) > len(restarts) else f"attempt {min(restarts)}"
        if alone and own:
            name = os.path.basename(own) or name
        attempts.append(Attempt(part, name, min(times, default=None), max(times, default=None), own if alone else None))
    return attempts


def _is_of_a_run(path: str | None, case: Case) -> bool:
    return any(run.path is not None and run.path == path for run in case.runs)


# --- by what launchers print ------------------------------------------------------------------------------------------


def _parts(log: LauncherLog) -> list[LauncherLog]:
    """The log cut where its launcher began again, without parts in which nothing is told."""
    starts = [event.line.number for event in log.events if isinstance(event, AttemptBegan)]
    went_on = _went_on(log)
    if went_on is not None:
        starts.append(went_on)
    if not starts:
        return [log]
    bounds = [0, *starts, log.lines + 1]
    parts = []
    for begin, end in pairwise(bounds):
        events = [event for event in log.events if begin <= event.line.number < end]
        if any(not isinstance(event, AttemptBegan | ProcessStarted) for event in events):
            # The lines behind the last event belong to the part: a traceback at the end is an end.
            lines = log.lines if end == bounds[-1] else end - 1
            parts.append(msgspec.structs.replace(log, events=events, lines=lines))
    # A job that began again and says nothing more ended well, or is still at it.
    if starts and parts and not any(event.line.number >= starts[-1] for event in parts[-1].events):
        last = [event for event in log.events if event.line.number >= starts[-1]]
        parts.append(msgspec.structs.replace(log, events=last))
    return parts or [log]


def _went_on(log: LauncherLog) -> int | None:
    """The line at which a torchrun job went on after its last failure, where nothing else says so: torchrun restarts
    without a word at its default level, and prints a summary when it gives up. What follows a failure for longer than
    the ranks' last words is the next attempt's output; where the log was cut there is little."""
    failed = [event for event in log.events if isinstance(event, ProcessDied) and event.launcher == "torchrun"]
    if not failed or any(event.line.text.startswith("time: ") for event in failed):
        return None
    last = max(event.line.number for event in log.events)
    noticed = failed[-1].line.number == last and "failed (exitcode" in failed[-1].line.text
    return last + 1 if noticed and log.lines - last > _LAST_WORDS else None


def _of_logs(case: Case) -> list[Attempt]:
    """Without records only one log with several parts can be told apart; of several logs nobody says which parts ran
    together, unless each has as many."""
    parts = [_parts(log) for log in case.launcher_logs]
    count = max(len(of_one) for of_one in parts)
    if any(len(of_one) not in (1, count) for of_one in parts):
        return [Attempt(case, "")]
    attempts = []
    shares = [[of_one[index] if len(of_one) == count else of_one[0] for of_one in parts] for index in range(count)]
    named = [_named(logs) for logs in shares]
    for logs, own in zip(shares, named, strict=True):
        numbers = [event.line.number for event in logs[0].events]
        path = logs[0].path or "the log"
        name = f"{os.path.basename(path)} lines {min(numbers, default=1)}-{max(numbers, default=logs[0].lines)}"
        others = sorted(set().union(*named) - own) if count <= MOST_ATTEMPTS else []
        attempts.append(Attempt(msgspec.structs.replace(case, launcher_logs=logs, of_other_attempts=others), name))
    return attempts


def _named(logs: Iterable[LauncherLog]) -> set[int]:
    """Pids of which the launchers say something."""
    events = (event for log in logs for event in log.events)
    return {event.pid for event in events if isinstance(event, ProcessDied | SignalledBy) and event.pid is not None}


def _shared_out(case: Case, groups: Sequence[_Group]) -> list[list[LauncherLog]]:
    """Each attempt's logs. A log beside its records is theirs; of a log that is about several, the events that name a
    process go with it, and the others with the part of the log that they stand in."""
    shares: list[list[LauncherLog]] = [[] for _ in groups]
    folders = [{os.path.dirname(life.path) for life in group.lives if life.path is not None} for group in groups]
    pids = [_pids(group) for group in groups]
    for log in case.launcher_logs:
        near = [index for index, of_group in enumerate(folders) if log.path and os.path.dirname(log.path) in of_group]
        if len(near) == 1:
            shares[near[0]].append(log)
            continue
        for index, part in enumerate(_by_process(log, pids, near or range(len(groups)))):
            if part is not None:
                shares[index].append(part)
    return shares


def _by_process(log: LauncherLog, pids: Sequence[set[int]], among: Iterable[int]) -> list[LauncherLog | None]:
    among = list(among)
    events: list[list[LauncherEvent]] = [[] for _ in pids]
    parts = _parts(log)
    aligned = len(parts) == len(among)
    for number, part in enumerate(parts):
        current = among[number] if aligned else among[-1]
        owner = current
        waiting: list[LauncherEvent] = []
        for event in part.events:
            named = event.pid if isinstance(event, ProcessDied | SignalledBy | ProcessStarted) else None
            found = next((index for index in among if named is not None and named in pids[index]), None)
            if found is not None and not aligned:
                # What stood since the last named process is about this attempt: a traceback precedes its report.
                owner = found
                events[owner] += waiting
                waiting = []
                events[owner].append(event)
            elif aligned or named is not None:
                events[found if found is not None else owner].append(event)
            else:
                waiting.append(event)
        events[owner] += waiting
    return [
        msgspec.structs.replace(log, events=of_one) if of_one or index == among[-1] else None
        for index, of_one in enumerate(events)
    ]


def _pids(group: _Group) -> set[int]:
    found: set[int] = set()
    for life in group.lives:
        item = life.item
        if isinstance(item, RunEvidence):
            found.update(died.pid for died in item.died)
        elif isinstance(item, CaseRing):
            found.update((item.ring.process.pid, *item.ring.process.nspid))
        elif item.record.process is not None:
            found.update(pid for pid in (item.record.process.pid, *item.record.process.nspid) if pid is not None)
    return found


# --- in one line ------------------------------------------------------------------------------------------------------


def in_one_line(attempt: Attempt, diagnosis: Diagnosis) -> AttemptReport:
    verdict = diagnosis.verdict
    first = diagnosis.processes[0] if diagnosis.processes else None
    return AttemptReport(
        name=attempt.name,
        outcome=verdict.outcome,
        cause=verdict.cause,
        confidence=verdict.confidence,
        summary=verdict.summary,
        root=_who(first) if first is not None and first.role == "root" else None,
        began=attempt.began,
        ended=attempt.ended,
        path=attempt.path,
    )


def _who(process: ProcessReport) -> str:
    pid = f"pid {process.pid}" if process.pid is not None else "pid unknown"
    return f"rank {process.rank} ({pid})" if process.rank is not None else pid

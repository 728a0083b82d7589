"""What a launcher's lines say of ends: "failed (exitcode: -9) local_rank: 1 (pid: 4711)".

A line names a process by pid, rank or local rank, in the numbers of one node. Logs of two nodes repeat them, so that a
line is about the processes that its own log named before, then about those that no log has named yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from ftforensics.causes.ranks import listed
from ftforensics.diagnose.joining.draft import MOST_ALIKE, Draft, Drafts
from ftforensics.diagnose.joining.log_texts import add_texts
from ftforensics.diagnose.matching import comm_of_program, other_machine
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.death import Outside
from ftforensics.model.launcher import LauncherLog, ProcessDied, ProcessStarted, SignalledBy, TextLine

# Of an end that is one of several processes' (deepspeed/launcher/launch.py, sigkill_handler).
_WHY = "the command that DeepSpeed prints is the last one that it started, whoever died"
_GRANT = "ftforensics run -- deepspeed ..."
_MOST_PIDS = 16

IsNamed = Callable[[Draft, int], bool]


def add_logs(drafts: Drafts, logs: Sequence[LauncherLog]) -> None:
    for number, log in enumerate(logs):
        _Log(drafts, log, f"{number} {log.path or ''}").add()


def add_ends_of_one(drafts: Drafts, logs: Sequence[LauncherLog], is_named: IsNamed) -> None:
    """The ends of which a launcher only says that it was one of its processes. is_named: does a kernel's log say of a
    draft that it ended by that signal? After everything else that tells of ends and exceptions is in its place."""
    for number, log in enumerate(logs):
        if any(isinstance(event, ProcessDied) and event.one_of for event in log.events):
            _Log(drafts, log, f"{number} {log.path or ''}").add_ends_of_one(is_named)


def line_cite(path: str, line: TextLine) -> Cite:
    return Cite("launcher", f"{line.path or path}:{line.number}", line.text)


class _Log:
    """One launcher's log. name: tells it from another one of the same path."""

    def __init__(self, drafts: Drafts, log: LauncherLog, name: str) -> None:
        self._drafts = drafts
        self._log = log
        self._name = name
        self._path = log.path or "launcher log"
        self._died = [event for event in log.events if isinstance(event, ProcessDied)]
        self._signalled = [event for event in log.events if isinstance(event, SignalledBy)]
        self._who = _Names(log)
        self._dates = _Dates(log)
        # Of ten thousand logs most tell of no end.
        self._signals = {draft.signal for draft in drafts if draft.signal is not None} if self._died else set()

    def add(self) -> None:
        # What names nobody may be about a process that another line names, wherever that stands.
        for end in sorted(self._died, key=_is_nameless):
            if not end.one_of:
                self._add_died(end)
        for event in self._signalled:
            self._add_signalled(event)
        self._place_between()
        add_texts(self._drafts, self._log, self._name, self._died)

    def _add_died(self, event: ProcessDied) -> None:
        rank, local_rank, host = self._who.of(event)
        draft = None
        if event.pid is not None:
            alike = self._drafts.of_pid(event.pid)
            draft = self._nearest((one for one in alike if not _is_another(one, rank, local_rank, host)), event, rank)
            if draft is None and len(alike) >= MOST_ALIKE:
                return
        elif rank is not None:
            fitting = (one for one in self._drafts.of_rank(rank) if not other_machine(one.host, host))
            draft = self._nearest(fitting, event, rank)
        elif local_rank is not None:
            fitting = (one for one in self._drafts.of_local_rank(local_rank) if not other_machine(one.host, host))
            ends = ((None, None), (event.signal, event.code))
            draft = self._nearest(
                (one for one in fitting if one.presumed or (one.signal, one.code) in ends), event, rank
            )
        elif event.signal is not None and event.signal in self._signals:
            return  # nobody is named, and something is known to have ended so: the same death, said once more
        if draft is None:
            if event.signal is None and _is_nameless(event) and (event.code in (None, 0) or len(self._drafts)):
                return
            draft = self._drafts.add(Draft(pid=event.pid))
        self._apply_died(draft, event, rank, local_rank, host)

    def add_ends_of_one(self, is_named: IsNamed) -> None:
        for event in self._died:
            if event.one_of:
                self._add_end_of_one(event, is_named)

    def _add_end_of_one(self, event: ProcessDied, is_named: IsNamed) -> None:
        known = [draft for pid in event.one_of for draft in self._drafts.of_pid(pid) if self._name in draft.told_by]
        able = [draft for draft in known if draft.open or (draft.signal, draft.code) == (event.signal, event.code)]
        seen = [draft for draft in able if not draft.open and not draft.presumed]
        named = [draft for draft in able if event.signal is not None and is_named(draft, event.signal)]
        raised = [draft for draft in able if any(not one.ignored and not one.peer_lost for one in draft.exceptions)]
        # Whom a signal ended printed no traceback; a status of its own comes behind one.
        likely = raised if event.signal is None else [draft for draft in able if not draft.exceptions]
        found = seen or named or likely or able
        if len(found) == 1 and (len(known) == len(set(event.one_of)) or seen or named):
            (draft,) = found
            draft.ended_by = [said for said in draft.ended_by if not said.everybody]
            self._apply_died(draft, event, draft.rank, draft.local_rank, draft.host)
        elif all(draft.open for draft in able):
            draft = self._drafts.add(Draft())
            self._apply_died(draft, event, None, None, None)
            pids = listed([str(pid) for pid in event.one_of], _MOST_PIDS)
            draft.gaps.append(Gap("launcher", f"which one of {pids} it was: {_WHY}", _GRANT))

    def _apply_died(
        self, draft: Draft, event: ProcessDied, rank: int | None, local_rank: int | None, host: str | None
    ) -> None:
        draft.contradict(event.signal, event.code, f"the launcher ({event.launcher})")
        if draft.open:
            draft.signal, draft.code = event.signal, event.code
        if (draft.signal, draft.code) == (event.signal, event.code):
            draft.presumed = False
        if (draft.signal, draft.code) == (event.signal, event.code) or not draft.ending:
            draft.ending.append(line_cite(self._path, event.line))
        if draft.signal is not None:
            self._signals.add(draft.signal)
        draft.rank = rank if draft.rank is None else draft.rank
        draft.local_rank = local_rank if draft.local_rank is None else draft.local_rank
        draft.host = draft.host or host
        draft.worker = draft.worker or event.worker
        draft.first = draft.first or event.first
        draft.told_by.add(self._name)
        if event.program:
            draft.names(comm_of_program(event.program))
        elif event.worker:
            draft.names("pt_data_worker", "python")
        if draft.untimed:
            draft.when = event.line.moment
        if draft.wall is None:
            draft.wall = event.line.wall
        self._date(draft, event.line)
        self._drafts.learnt(draft)

    def _date(self, draft: Draft, line: TextLine) -> None:
        if draft.told_wall is None and draft.told_day is None:
            draft.told_wall, draft.told_day = self._dates.after(line)

    def _add_signalled(self, event: SignalledBy) -> None:
        rank, local_rank, host = self._who.of(event)
        alike = self._drafts.of_pid(event.pid)
        draft = self._nearest((one for one in alike if not _is_another(one, rank, local_rank, host)), event, rank)
        if draft is not None and event.also_dead and not draft.open:
            return  # the launcher names every rank, the one that had died too
        if draft is None:
            if len(alike) >= MOST_ALIKE:
                return
            draft = self._drafts.add(Draft(pid=event.pid, rank=rank, local_rank=local_rank, host=host))
        draft.told_by.add(self._name)
        self._date(draft, event.line)  # what a launcher ends goes within the minute, or had gone
        if draft.signal is not None and event.signal is not None and draft.signal != event.signal:
            return  # it had died of something else when the launcher got to it
        said = Outside(
            line_cite(self._path, event.line),
            event.launcher,
            event.signal,
            event.also_dead,
            event.line.number,
            event.line.path,
        )
        draft.ended_by.append(said)

    def _nearest(self, fitting: Iterable[Draft], event: ProcessDied | SignalledBy, rank: int | None) -> Draft | None:
        """Of the processes that a line may be about the one that this log named before; else one that no log named;
        else one of another log's, where something says that it is the same."""
        found = list(fitting)
        own = [one for one in found if self._name in one.told_by]
        fresh = [one for one in found if not one.told_by]
        best = own or fresh or [one for one in found if _is_same(one, event, rank)]
        return best[0] if best else None

    def _place_between(self) -> None:
        """mp.spawn says not which pid its dead child had; the child was started after it and along with the
        siblings."""
        siblings = [event for event in self._signalled if event.launcher == "mp.spawn"]
        starters = {event.line.writer for event in siblings if event.line.writer is not None}
        if len(starters) != 1 or not any(event.launcher == "mp.spawn" for event in self._died):
            return
        unnamed = [draft for draft in self._drafts if draft.pid is None and draft.local_rank is not None]
        if len(unnamed) == 1:
            unnamed[0].between = (min(starters), max(event.pid for event in siblings))
            unnamed[0].names("python")


def _is_same(draft: Draft, event: ProcessDied | SignalledBy, rank: int | None) -> bool:
    """Is a line about the process that another log named? A rank's own log beside its launcher's, or one log that was
    given twice. Two nodes' launchers give out the same pids and local ranks."""
    if rank is not None and draft.rank == rank:
        return True
    if any(cite.text == event.line.text for cite in draft.ending) or (isinstance(event, ProcessDied) and event.worker):
        return True
    return draft.observed and (None in (event.line.writer, draft.ppid) or event.line.writer == draft.ppid)


class _Dates:
    """The dates that a log's lines state. What stands before a dated line had happened by then, and not long before: a
    job does not outlive a dead process by days without a word."""

    def __init__(self, log: LauncherLog) -> None:
        self._walls = {event.line.number: event.line.wall for event in log.events if event.line.wall is not None}
        self._days = {event.line.number: event.line.day for event in log.events if event.line.day is not None}
        self._orders = (sorted(self._walls), sorted(self._days))

    def after(self, line: TextLine) -> tuple[float | None, float | None]:
        """(date and time, the same without its year) of the next line that has one, as `TextLine` has them."""
        places = [bisect_left(order, line.number) for order in self._orders]
        wall, day = (order[at] if at < len(order) else 0 for order, at in zip(self._orders, places, strict=True))
        return self._walls.get(wall), self._days.get(day)


_Name = tuple[int | None, int | None, str | None]  # rank, local rank, host
_NOBODY: _Name = (None, None, None)


class _Names:
    """What the lines of one log say together about a pid: torchrun names the local rank where it sees the end, and the
    rank and the host in its summary."""

    def __init__(self, log: LauncherLog) -> None:
        self._known: dict[int, _Name] = {}
        self._several: set[int] = set()  # named in two ways: several nodes wrote this log
        for event in log.events:
            if isinstance(event, ProcessStarted | ProcessDied) and event.pid is not None:
                host = event.host if isinstance(event, ProcessDied) else None
                self._learn(event.pid, event.rank, event.local_rank, host)

    def _learn(self, pid: int, rank: int | None, local_rank: int | None, host: str | None) -> None:
        known = self._known.get(pid, _NOBODY)
        if any(None not in pair and pair[0] != pair[1] for pair in zip(known, (rank, local_rank, host), strict=True)):
            self._several.add(pid)
        self._known[pid] = (_first(known[0], rank), _first(known[1], local_rank), known[2] or host)

    def of(self, event: ProcessDied | SignalledBy) -> _Name:
        named = event.pid is not None and event.pid not in self._several
        rank, local_rank, host = self._known.get(event.pid or 0, _NOBODY) if named else _NOBODY
        if isinstance(event, SignalledBy):
            return rank, local_rank, host
        return _first(event.rank, rank), _first(event.local_rank, local_rank), event.host or host


def _is_another(draft: Draft, rank: int | None, local_rank: int | None, host: str | None) -> bool:
    """The same number on another node, as containers that start alike have it."""
    if other_machine(draft.host, host):
        return True
    pairs = ((draft.rank, rank), (draft.local_rank, local_rank))
    return not draft.worker and any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _is_nameless(event: ProcessDied) -> bool:
    """mp.spawn names its children by their index alone."""
    return event.pid is None and event.rank is None and event.local_rank is None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)

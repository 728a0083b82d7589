"""What kernel logs say of each death: OOM kills, faults, hardware errors, found by the number they name.

A record that fits several processes equally well proves nothing about any of them; see `diagnose.matching` for how one
is argued.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from ftforensics.causes.ending import signal_of
from ftforensics.diagnose.clocks import Clocks, seconds_between
from ftforensics.diagnose.joining.draft import Draft
from ftforensics.diagnose.matching import (
    KILL_TO_END,
    SLACK,
    locator,
    match_fault,
    match_line,
    match_oom,
    name_fits,
    own_group,
    same_machine,
)
from ftforensics.diagnose.mechanism.kernel_line import read_kernel_line
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death, FaultMatch, KernelMatch, Match, OomMatch, Tie
from ftforensics.model.kernel import CpuLimit, Fault, KernelEvent, KernelLog, LogLine, MemoryFailure, OomKill, Oops
from ftforensics.model.moment import Moment

SIGKILL = 9
MOST_OTHERS = 20
MOST_ALIKE = 512  # records that only their looks tie to one death
MOST_BETWEEN = 16  # pids that others may take while a launcher starts one more rank
_ORDER = {Tie.EXACT: 0, Tie.TEXT: 1, Tie.STRONG: 2, Tie.WEAK: 3}
_Found = TypeVar("_Found", OomMatch, FaultMatch)
_About = Oops | MemoryFailure | CpuLimit


class KernelWord:
    """All kernel logs of a case, indexed."""

    def __init__(self, logs: Sequence[KernelLog]) -> None:
        self._logs = [_Log(log) for log in logs]
        self._machines: dict[tuple[str | None, str | None], _Machine] = {}  # by boot and host
        self._of_logs: dict[tuple[int, ...], _Machine] = {}

    def tell(self, death: Death, draft: Draft) -> Death:
        """The death with what the kernel says about it."""
        machine = self._machine(death)
        matched = list(_kills_of(machine, death, draft))
        if not matched and (alone := _unnamed(machine, death, draft)) is not None:
            matched.append(alone)
        oom = _best_founded(_without_doubles(matched))
        faults = _best_founded(_each_fault_once(list(_faults_of(machine, death))))
        reading = death.reading
        if death.crash is None and reading.mechanism is None and len(faults) == 1 and not faults[0].match.against:
            reading = read_kernel_line(faults[0].fault, faults[0].cite)
        signal, ending, when, failed = death.signal, list(death.ending), death.when, death.failed
        if oom and oom[0].match.sure:
            killed = _on_the_wall(oom[0].kill.line.moment, death)
            if signal is None and death.code is None:
                signal = SIGKILL
                ending.append(oom[0].cite)
            if when.monotonic is None and when.realtime is None:
                when = killed
            if failed.monotonic is None and failed.realtime is None:
                failed = killed
        likely = oom[0].kill.pid if death.pid is None and oom and oom[0].match.tie is Tie.STRONG else None
        return msgspec.structs.replace(
            death,
            pid=death.pid if likely is None else likely,
            oom=oom,
            others_oom=self._others({id(one.kill) for one in matched}),
            faults=faults,
            kernel=list(_lines_of(machine, death)),
            reading=reading,
            signal=signal,
            ending=ending,
            when=when,
            failed=failed,
            kernel_log_covers=machine.covers(death),
        )

    def _machine(self, death: Death) -> _Machine:
        key = (death.boot_id, death.host)
        if key not in self._machines:
            places = tuple(place for place, one in enumerate(self._logs) if same_machine(one.log, death))
            if places not in self._of_logs:
                self._of_logs[places] = _Machine([self._logs[place] for place in places])
            self._machines[key] = self._of_logs[places]
        return self._machines[key]

    def _others(self, own: set[int]) -> list[KernelEvent]:
        found: list[KernelEvent] = []
        for one in self._logs:
            for kill in one.kills:
                if len(found) == MOST_OTHERS:
                    return found
                if id(kill) not in own:
                    found.append(kill)
        return found


class _Log:
    """One log's records by the number they name."""

    def __init__(self, log: KernelLog) -> None:
        self.log = log
        self.kills = [event for event in log.events if isinstance(event, OomKill)]
        self.by_pid: dict[int, list[tuple[int, OomKill]]] = {}  # with their place in `kills`
        for place, kill in enumerate(self.kills):
            self.by_pid.setdefault(kill.pid, []).append((place, kill))
        self.faults: dict[int, list[Fault]] = {}
        self.about: dict[int, list[_About]] = {}
        for event in log.events:
            if isinstance(event, Fault):
                self.faults.setdefault(event.tid, []).append(event)
            elif isinstance(event, _About) and event.pid is not None:
                self.about.setdefault(event.pid, []).append(event)
        self._clocked: dict[str, list[tuple[float, int]]] = {"monotonic": [], "realtime": []}
        self._unclocked: dict[str, list[int]] = {"monotonic": [], "realtime": []}
        for clock, places in self._clocked.items():
            for place, kill in enumerate(self.kills):
                at = getattr(kill.line.moment, clock)
                if at is None:
                    self._unclocked[clock].append(place)
                else:
                    places.append((at, place))
            places.sort()
        self._boots = {kill.line.moment.boot_id for kill in self.kills} | {log.boot_id}
        self._accuracy = max((kill.line.moment.accuracy for kill in self.kills), default=0.0)

    def around(self, death: Death) -> Iterable[OomKill]:
        """The kills that may be of that time: all of them, where no clock tells."""
        same_boot = death.boot_id is not None and self._boots <= {None, death.boot_id}
        if same_boot and death.when.monotonic is not None:
            clock, end = "monotonic", death.when.monotonic
        elif death.when.monotonic is None and death.when.realtime is not None:
            clock, end = "realtime", death.when.realtime
        else:
            return self.kills
        slack = SLACK + death.when.accuracy + self._accuracy
        clocked = self._clocked[clock]
        low = bisect_left(clocked, (end - KILL_TO_END - slack, -1))
        high = bisect_right(clocked, (end + slack, len(self.kills)))
        places = [place for _, place in clocked[low:high]] + self._unclocked[clock]
        return (self.kills[place] for place in sorted(places))


class _Machine:
    """The logs that may be of one machine and boot."""

    def __init__(self, logs: Sequence[_Log]) -> None:
        self.logs = logs
        honest = [(kill, one.log) for one in logs for kill in one.kills if not kill.line.forgeable]
        # A kill that names nobody's number can be told whose it is only where there is but one.
        self.only = honest if len({_record(kill) for kill, _ in honest}) == 1 else []
        self.honest = honest

    def covers(self, death: Death) -> bool | None:
        """True only for the kernel's own log of this boot with continuous record numbers from before the end to
        after."""
        for one in self.logs:
            log = one.log
            if not log.gap_free or log.boot_id is None or log.boot_id != death.boot_id or log.first is None:
                continue
            start = seconds_between(log.first, death.earliest if death.earliest.monotonic else death.when)
            end = seconds_between(death.when, log.last) if log.last is not None else None
            if start is not None and start[0] >= 0 and (log.live or (end is not None and end[0] >= 0)):
                return True
        return None


def _kills_of(machine: _Machine, death: Death, draft: Draft) -> Iterator[OomMatch]:
    if death.signal not in (None, SIGKILL) or (death.code is not None and death.signal is None):
        return  # the OOM killer's signal cannot be caught, and this process ended otherwise
    for one in machine.logs:
        log = one.log
        named = {place: kill for pid in death.host_pids for place, kill in one.by_pid.get(pid, ())}
        kills: Iterable[OomKill] = (named[place] for place in sorted(named))
        if not death.initial_namespace and (death.comms or death.ring is not None):
            fits: dict[str, bool] = {}
            alike = [kill for kill in one.around(death) if kill.pid in death.host_pids or _fits(kill.comm, death, fits)]
            # The last ones before the end are the likeliest; so many of one name and minute tell nothing apart.
            kept = {id(kill): kill for kill in [*alike[-MOST_ALIKE:], *named.values()]}
            kills = kept.values()
        for kill in kills:
            match = match_oom(kill, log, death)
            if match is not None:
                own = own_group(kill, death, draft.run_group)
                yield OomMatch(kill, match, _cite(log, kill.line), _block(kill, log), own)


def _fits(comm: str, death: Death, known: dict[str, bool]) -> bool:
    if comm not in known:
        known[comm] = name_fits(comm, death)
    return known[comm]


def _faults_of(machine: _Machine, death: Death) -> Iterator[FaultMatch]:
    record = death.crash.record.process if death.crash is not None else None
    tids = dict.fromkeys([*death.host_pids, *([record.tid] if record is not None and record.tid is not None else [])])
    for one in machine.logs:
        for fault in (fault for tid in tids for fault in one.faults.get(tid, ())):
            match = match_fault(fault, one.log, death)
            if match is not None:
                yield FaultMatch(fault, match, _cite(one.log, fault.line))


def _lines_of(machine: _Machine, death: Death) -> Iterator[KernelMatch]:
    for one in machine.logs:
        for event in (event for pid in death.host_pids for event in one.about.get(pid, ())):
            match = match_line(event.line, event.pid, event.comm, one.log, death)
            if match is not None:
                yield KernelMatch(event, match, _cite(one.log, event.line))


def _cite(log: KernelLog, line: LogLine) -> Cite:
    return Cite(log.source, locator(log, line), line.text[:300])


def _unnamed(machine: _Machine, death: Death, draft: Draft) -> OomMatch | None:
    """The only OOM kill among its siblings' numbers, or of the logs, for a process to which the job's log gives no
    number of its own: "Killed" alone, or a wrapper's exit status that stands for its child's end."""
    wrapped = death.signal is None and signal_of(death) == SIGKILL
    if not (wrapped or (death.pid is None and death.signal == SIGKILL)) or death.initial_namespace is not None:
        return None
    near = []
    if draft.between is not None:
        near = [(kill, log) for kill, log in machine.honest if _is_sibling(kill, death, draft.between)]
    if len({_record(kill) for kill, _ in near}) > 1:
        return None
    kills = near or machine.only
    if not kills:
        return None
    kill, log = kills[0]
    place = locator(log, kill.line)
    if near:
        text = f"pid {kill.pid} is one that its launcher, pid {(draft.between or (0, 0))[0]}, may have given it"
        match = Match(Tie.STRONG, [Cite(log.source, place, text)])
    else:
        match = Match(Tie.WEAK, [], [Cite(log.source, place, "nothing but the signal ties this line to the job")])
    return OomMatch(kill, match, _cite(log, kill.line), _block(kill, log), own_group(kill, death, None))


def _is_sibling(kill: OomKill, death: Death, between: tuple[int, int]) -> bool:
    """Its number comes soon after its launcher's and about the siblings', and its name fits."""
    launcher, sibling = between
    if not launcher < kill.pid <= sibling + MOST_BETWEEN or kill.pid == sibling or sibling - launcher > 1000:
        return False
    return name_fits(kill.comm, death)


def _on_the_wall(moment: Moment, death: Death) -> Moment:
    """A kernel time of the process's own boot, with the wall-clock time that the recorder's pairs of clocks give it."""
    if moment.realtime is not None or moment.monotonic is None or death.ring is None:
        return moment
    return Clocks(death.ring.clocks, death.boot_id).at(moment.monotonic)


def _record(kill: OomKill) -> tuple[object, ...]:
    return (kill.pid, kill.comm, kill.anon_rss)


def _without_doubles(found: list[OomMatch]) -> list[OomMatch]:
    """The same record read from two places (kmsg and a file) is one."""
    kept: list[OomMatch] = []
    alike: dict[tuple[object, ...], list[OomMatch]] = {}
    for one in sorted(found, key=lambda match: (_ORDER[match.match.tie], len(match.match.against))):
        kill = one.kill
        same = alike.setdefault((kill.pid, kill.comm, kill.total_vm, kill.anon_rss), [])
        if not any(_may_be_one_time(kill.line.moment, other.kill.line.moment) for other in same):
            same.append(one)
            kept.append(one)
    return kept


def _best_founded(found: list[_Found]) -> list[_Found]:
    """Without records that something contradicts, where one that is tied as well has less against it. A number is given
    out again, and any program can write a line to the log: neither is a reason to doubt the genuine record."""
    honest = [one for one in found if not _line_of(one).forgeable] or found
    best = min((_ORDER[one.match.tie] for one in honest), default=0)
    clean = min((_ORDER[one.match.tie] for one in honest if not one.match.against), default=len(_ORDER))
    return [
        one
        for one in honest
        if not one.match.against or (_ORDER[one.match.tie] < clean and _ORDER[one.match.tie] == best)
    ]


def _line_of(found: OomMatch | FaultMatch) -> LogLine:
    return found.kill.line if isinstance(found, OomMatch) else found.fault.line


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


def _may_be_one_time(one: Moment, other: Moment) -> bool:
    apart = seconds_between(one, other)
    return apart is None or abs(apart[0]) <= 1.0 + apart[1]


def _block(kill: OomKill, log: KernelLog) -> list[Cite]:
    return [_cite(log, line) for line in (kill.limits, kill.constraint) if line is not None]


# --- one record, one death --------------------------------------------------------------------------------------------


def one_record_one_death(deaths: list[Death]) -> list[Death]:
    """A record that fits several processes equally well proves nothing about any of them, and a process that several
    records fit was killed once."""
    holders: dict[int, list[int]] = {}  # by record: the deaths that it fits
    ties: dict[int, Counter[Tie]] = {}
    sure: Counter[int] = Counter()
    for index, death in enumerate(deaths):
        for one in death.oom:
            holders.setdefault(id(one.kill), []).append(index)
            ties.setdefault(id(one.kill), Counter())[one.match.tie] += 1
            sure[id(one.kill)] += one.match.sure
    enough = _enough_records(deaths, holders)
    result = []
    for index, death in enumerate(deaths):
        if not death.oom:
            result.append(death)
            continue
        oom = []
        for one in death.oom:
            if not one.match.sure and sure[id(one.kill)]:
                continue  # it is surely another's
            rivals = ties[id(one.kill)][one.match.tie] > 1
            several = len(death.oom) > 1 and one.match.tie is not Tie.EXACT
            if (rivals and one.match.tie is not Tie.EXACT) or several:
                one = msgspec.structs.replace(
                    one, match=_weaker(one.match, rivals, several, rivals and index in enough)
                )
            oom.append(one)
        result.append(msgspec.structs.replace(death, oom=oom))
    return result


def _enough_records(deaths: Sequence[Death], holders: dict[int, list[int]]) -> set[int]:
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
                reached = set(holders[record]) & left
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

"""Signals, traced senders and the statements of schedulers and containers: which of them are about this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.diagnose.clocks import LARGEST_OFFSET, SMALLEST_OFFSET, Clocks, seconds_after, seconds_between
from ftforensics.diagnose.joining.family import Family
from ftforensics.diagnose.matching import KILL_TO_END, SLACK, name_fits, other_machine
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death, Match, NoticeMatch, SentMatch, SignalMatch, Tie
from ftforensics.model.notice import Notice
from ftforensics.model.run import RunEvidence, Sent
from ftforensics.parsers.cgroup_path import ancestry, is_at_or_below, unit_of

SI_KERNEL = 128
RECENT = 600.0  # seconds before the end in which a signal may have to do with it: the longest grace periods
GRACE = 180.0  # seconds from a scheduler's decision to the end that a launcher reports, with two clocks' slack
_CONTAINED = ("kubernetes", "docker")


class Outsiders:
    """All that outsiders say in a case, by the process, group or unit that they say it of."""

    def __init__(self, deaths: Sequence[Death], runs: Sequence[RunEvidence], notices: Sequence[Notice]) -> None:
        self._senders = _Senders(deaths, runs)
        self._traces = [_Trace(run) for run in runs if run.sent]
        self._notices = _Notices(notices)
        self._killed = sum(death.signal == 9 for death in deaths)

    def signals(self, death: Death) -> list[SignalMatch]:
        return _match_signals(death, self._senders)

    def sent(self, death: Death) -> list[SentMatch]:
        return [match for trace in self._traces for match in _match_sent(death, trace, self._senders)]

    def notices(self, death: Death) -> list[NoticeMatch]:
        return self._notices.about(death, self._killed)


def _match_signals(death: Death, senders: _Senders) -> list[SignalMatch]:
    """What the recorder saw arriving in its last minutes."""
    ring = death.ring
    if ring is None:
        return []
    end = death.when.monotonic if death.when.monotonic is not None else ring.last
    found = []
    for index, seen in enumerate(ring.signals):
        before = end - seen.at if end is not None else None
        if before is not None and not -SLACK <= before <= RECENT:
            continue
        pid = seen.sender.pid if seen.sender else None
        role, comm = senders.who(pid, death)
        sender = f" from pid {pid}" if pid is not None else ""
        text = f"{seen.name}{sender}{f' ({comm})' if comm else ''}"
        cite = Cite("ring", f"{death.ring_path or 'ring'} signals[{index}]", text)
        found.append(SignalMatch(seen, cite, before, role, comm))
    return found


class _Trace:
    """The traced signals of one run, by their target."""

    def __init__(self, run: RunEvidence) -> None:
        self.run = run
        self.boot = run.started.boot_id if run.started else None
        self.clocks = Clocks([run.started.clocks] if run.started else [], self.boot)
        self.to: dict[int, list[Sent]] = {}
        for sent in run.sent:
            self.to.setdefault(sent.target_tid, []).append(sent)


def _match_sent(death: Death, trace: _Trace, senders: _Senders) -> Iterator[SentMatch]:
    """Traced signals whose target is this process. The tracer names pids of the initial namespace."""
    run = trace.run
    if trace.boot is not None and death.boot_id is not None and trace.boot != death.boot_id:
        return
    for sent in (sent for pid in dict.fromkeys(death.host_pids) for sent in trace.to.get(pid, ())):
        if death.signal not in (None, sent.signal):
            continue
        apart = seconds_between(trace.clocks.at(sent.at), death.when)
        if apart is not None and not -SLACK <= apart[0] <= KILL_TO_END:
            continue
        first, way = _first_sender(sent, trace)
        pid = first.sender_pid if first.sender_pid is not None else first.sender_tid
        role, _ = senders.who(pid, death)
        against = []
        place = f"{run.path or 'evidence.jsonl'} sent"
        if not name_fits(sent.target_comm, death):
            against.append(Cite("trace", place, f"the tracer calls the target {sent.target_comm!r}"))
        why = [Cite("trace", place, f"pid {sent.target_tid} is this process")]
        tie = Tie.EXACT if death.initial_namespace else Tie.TEXT
        by_kernel = first.code == SI_KERNEL
        who = "the kernel" if by_kernel else f"pid {pid}" + (f" ({first.sender_comm})" if first.sender_comm else "")
        text = f"signal {sent.signal} to pid {sent.target_tid} ({sent.target_comm}) from {who}{way}, code {first.code}"
        cite = Cite("trace", "signal:signal_generate", text)
        yield SentMatch(first, Match(tie, why, against), cite, by_kernel, role)


def _first_sender(sent: Sent, trace: _Trace) -> tuple[Sent, str]:
    """(the signal as it was sent first, by which way it came): `run` passes on what is sent to it alone."""
    run = trace.run
    if run.started is None or run.started.pid not in (sent.sender_pid, sent.sender_tid):
        return sent, ""
    way = " by way of ftforensics run"
    for first in reversed(trace.to.get(run.started.pid, ()) if run.started.pid is not None else ()):
        if first.signal == sent.signal and first.at <= sent.at:
            return msgspec.structs.replace(first, target_tid=sent.target_tid, target_comm=sent.target_comm), way
    passed = [one for one in run.forwarded if one.signal == sent.signal and one.sender_pid is not None]
    if not passed:
        return sent, ""
    # Its number was read when the signal arrived; whose it was then, and its name, nobody looked up.
    pid = passed[-1].sender_pid
    return msgspec.structs.replace(sent, sender_pid=pid, sender_tid=pid, sender_comm=""), way


class _Notices:
    """Statements, by the number or group that they name; the rest may be about any process."""

    def __init__(self, notices: Sequence[Notice]) -> None:
        self._all = notices
        self._by_pid: dict[int, list[int]] = {}
        self._by_group: dict[str, list[int]] = {}
        self._any: list[int] = []
        for place, notice in enumerate(notices):
            if notice.pid is not None:
                self._by_pid.setdefault(notice.pid, []).append(place)
            elif notice.group is not None:
                self._by_group.setdefault(notice.group.rstrip("/"), []).append(place)
            else:
                self._any.append(place)

    def about(self, death: Death, killed: int) -> list[NoticeMatch]:
        """Statements about this process, its group, its job or its container. killed: how many of the case were."""
        places = set(self._any)
        for pid in (death.pid, *death.host_pids):
            places.update(self._by_pid.get(pid, ()) if pid is not None else ())
        if self._by_group and death.groups:
            for group in ancestry(death.groups[0]):
                places.update(self._by_group.get(group.rstrip("/"), ()))
        found = []
        for notice in (self._all[place] for place in sorted(places)):
            match = _notice(notice, death)
            if match is None:
                continue
            if (other := _other_time(notice, death)) is not None:
                match = Match(Tie.WEAK, match.why, [*match.against, other])
            if match.tie is Tie.STRONG and notice.kind == "oom":
                match = msgspec.structs.replace(match, against=[*match.against, *_other_units(notice, self._all)])
            found.append(
                NoticeMatch(notice, match, alone=killed <= (notice.count or 1), above=_is_above(notice, death))
            )
        return found


def _is_above(notice: Notice, death: Death) -> bool:
    """By the lines' numbers, where one log has both."""
    path, _, number = notice.cite.locator.rpartition(":")
    told = (cite.locator.rpartition(":") for cite in death.ending if cite.source == "launcher")
    lines = [int(line) for log, _, line in told if log == path and line.isdecimal()]
    return bool(lines) and number.isdecimal() and int(number) < min(lines)


def _notice(notice: Notice, death: Death) -> Match | None:
    if notice.live and death.boot_id is None:
        return None
    # Slurm names all of a job's nodes: "n[1-4]", "n1,n2".
    several = notice.host is not None and set("[,") & set(notice.host)
    # A pod or container has a host name of its own, which is not its node's.
    if not several and notice.authority not in _CONTAINED and other_machine(notice.host, death.host):
        return None
    against: list[Cite] = []
    apart = seconds_between(notice.moment, death.when) or seconds_after(notice.moment, death.wall)
    if notice.kind == "oom" and apart is not None and apart[0] > KILL_TO_END + apart[1]:
        return None  # of an earlier process: this one still lived then
    if notice.kind == "killed" and apart is not None and not -SLACK - apart[1] <= apart[0] <= KILL_TO_END + apart[1]:
        return None
    if notice.pid is not None:
        pids = [*death.host_pids, death.pid]
        if notice.pid not in pids:
            return None
        if notice.comm is not None and not name_fits(notice.comm, death):
            against.append(Cite(notice.authority, notice.cite.locator, f"it calls the process {notice.comm!r}"))
        why = [Cite(notice.authority, notice.cite.locator, f"pid {notice.pid} is this process")]
        # Ray names pids as its worker sees itself; the others are outside of containers.
        exact = notice.live and bool(death.initial_namespace)
        return Match(Tie.EXACT if exact else Tie.TEXT, why, against)
    if notice.group is not None:
        if not death.groups or not is_at_or_below(death.groups[0], notice.group):
            return None
        why = [Cite(notice.authority, notice.cite.locator, f"{notice.group} is this process's group")]
        return Match(Tie.EXACT if notice.live else Tie.TEXT, why, against)
    if notice.unit is not None and death.groups:
        unit = unit_of(death.groups[0]) or ""
        number = notice.unit.partition(".")[0].partition("_")[0]
        named = (
            f"job_{number}" in unit.split("/")
            or notice.unit in unit
            or (death.container is not None and len(notice.unit) >= 12 and death.container.startswith(notice.unit[:12]))
        )
        if named:
            why = [Cite(notice.authority, notice.cite.locator, f"{notice.unit} is what this process belongs to")]
            return Match(Tie.TEXT, why, against)
        if unit:
            return None  # of another job
    # The person handed it over with this death, and nothing says whose it is.
    why = [Cite(notice.authority, notice.cite.locator, "given together with this process's traces")]
    return Match(Tie.STRONG, why, against)


def _other_time(notice: Notice, death: Death) -> Cite | None:
    """Said of an earlier attempt, whose output stands in the same file, or long after the end."""
    if (
        notice.wall is None
        or death.wall is None
        or notice.kind not in ("time-limit", "preempted", "requeued", "cancelled")
    ):
        return None
    apart = death.wall - notice.wall
    near = (apart + KILL_TO_END) % SMALLEST_OFFSET - KILL_TO_END
    if abs(apart) <= LARGEST_OFFSET + GRACE and near <= GRACE:
        return None
    when = f"{abs(apart) / 3600:.1f} h {'before' if apart > 0 else 'after'} the end that the launcher reports"
    return Cite(notice.authority, notice.cite.locator, f"that was {when}, by clocks that name no zone")


def _other_units(notice: Notice, notices: Sequence[Notice]) -> list[Cite]:
    """Units of the same kind that failed without it: nothing says in which of them this process was."""
    return [
        Cite(other.authority, other.cite.locator, f"{other.unit} failed as well, without an OOM kill")
        for other in notices
        if other.kind == "state"
        and other.authority == notice.authority
        and other.unit not in (None, notice.unit)
        and (other.exit_code or other.signal)
        and _is_rival(other)
    ][:3]


def _is_rival(notice: Notice) -> bool:
    """Slurm's job and its batch and extern steps fail along with the step that runs the ranks."""
    _, dot, step = (notice.unit or "").rpartition(".")
    return notice.authority != "slurm" or bool(dot and step.isdecimal())


_Number = tuple[str | None, int]  # boot, pid; without a boot where either side does not say


class _Senders:
    """What the sender of a signal was to the process that it came to."""

    def __init__(self, deaths: Sequence[Death], runs: Sequence[RunEvidence]) -> None:
        self._family = Family(deaths)
        self._names: dict[_Number, str | None] = {}
        self._supervisors: dict[_Number, str] = {}
        for run in runs:
            boot = run.started.boot_id if run.started else None
            for died in run.died:
                for number in {(boot, died.pid), (None, died.pid)}:
                    self._names.setdefault(number, died.comm)
            if run.started is not None and run.started.pid is not None:
                passed = next((one for one in run.forwarded if one.sender_pid is not None), None)
                said = f"ftforensics run, which had it from pid {passed.sender_pid}" if passed else "ftforensics run"
                for number in {(boot, run.started.pid), (None, run.started.pid)}:
                    self._supervisors.setdefault(number, said)

    def who(self, pid: int | None, death: Death) -> tuple[str | None, str | None]:
        """(what the sender was to this process, its name)."""
        if pid is None:
            return None, None
        number = (death.boot_id, pid)
        comm = self._names.get(number)
        if pid in (death.pid, *death.host_pids):
            return "self", comm
        if number in self._supervisors:
            return "supervisor", self._supervisors[number]
        if pid == death.ppid:
            return ("launcher" if death.rank is not None else "parent"), comm
        for other in self._family.of_pid(pid, death):
            return "sibling", comm or (other.comms[0] if other.comms else None)
        return None, comm

"""Who shares a fate with whom: the rank table. The first failure stands first, a worker below its rank.

However many processes there are the table stays short: those that ended alike are one line, and where every host makes
lines of its own the hosts are put together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence

import msgspec

from ftforensics.causes.sizes import time_text
from ftforensics.model.diagnosis import Diagnosis, ProcessReport
from ftforensics.report.phrases import clock, ending, is_worker, leaves_nothing, name, nobody_here, root, who

MOST_NAMED = 6  # pids of processes without a rank
MOST_RUNS = 12  # ranges of ranks in a line
MOST_HOSTS = 3  # named in a line
MISSING = "missing"  # stands where others have their role
_SENDER = re.compile(r"\d+ \((.+)\)")  # ProcessReport.by: "17987 (torchrun)"
# What may have begun it before what followed from it.
_ORDER = {"root": 0, "victim": 1, "unknown": 2, MISSING: 3, "collateral": 4}


class Fate(msgspec.Struct, frozen=True):
    """who: one or many; how: "ended by SIGTERM from 17987 (torchrun), 1.9 s later"; below: workers of the rank in the
    line before."""

    who: str
    role: str
    how: str
    members: list[ProcessReport] = []
    below: bool = False


class Table(msgspec.Struct, frozen=True):
    """title: "Ranks" or "Processes"; of: how many and where; left_out: fates that had no room, and whose they are."""

    title: str
    of: str
    fates: list[Fate]
    left_out: int = 0
    left_out_members: int = 0


def table(diagnosis: Diagnosis, most: int) -> Table | None:
    """At most `most` fates, the first failure always among them. None when there is nobody to compare."""
    processes = diagnosis.processes
    if len(processes) < 2 and not diagnosis.missing:
        return None
    hosts = dict.fromkeys(process.host for process in processes if process.host)
    several = len(hosts) > 1
    # Who the report is about stands alone and first, even where another one may have failed before it.
    first = None if nobody_here(diagnosis) else root(diagnosis)
    rest = processes if first is None else processes[1:]
    groups = _grouped(rest, _own_fate)
    if len(groups) > most:
        groups = _grouped(rest, _alike_anywhere)
    groups.sort(key=lambda members: _ORDER.get(members[0].role, 2))  # stable: in the order of their first members
    if first is not None:
        groups.insert(0, [first])
    began = first_time(diagnosis)
    fates = [
        Fate(
            names(members, with_host=several),
            members[0].role,
            _how(members) + ("" if members[0] is first else later(members, began)),
            members,
        )
        for members in groups
    ]
    fates = _with_workers_below(fates)
    if diagnosis.missing:
        # They are the answer where nobody here failed first, and a remark where somebody did.
        fates.insert(len(fates) if first is not None else 0, _missing(diagnosis))
    left_out = _without_room(fates, most, fates[:1])
    dropped = {id(fate) for fate in left_out}
    return Table(
        "Ranks" if diagnosis.missing or any(process.rank is not None for process in processes) else "Processes",
        _extent(diagnosis, list(hosts)),
        [fate for fate in fates if id(fate) not in dropped],
        len(left_out),
        sum(len(fate.members) for fate in left_out),
    )


def witnesses(diagnosis: Diagnosis) -> str:
    """Who tells of a peer that is lost: "seen by ranks 0-3 on gpu-08, first at ..."."""
    seen = [process for process in diagnosis.processes if not leaves_nothing(process)]
    if not seen:
        return "nothing here is known of the process itself"
    times = [process.time for process in seen if process.time is not None]
    when = f", first at {clock(min(times))}" if times else ""
    who_saw = (
        names(seen, with_host=True) if len({is_worker(process) for process in seen}) == 1 else f"{len(seen)} processes"
    )
    return f"seen by {who_saw}{when}"


def _grouped(processes: Sequence[ProcessReport], key: Callable[[ProcessReport], Hashable]) -> list[list[ProcessReport]]:
    groups: dict[Hashable, list[ProcessReport]] = {}
    for process in processes:
        groups.setdefault(key(process), []).append(process)
    return list(groups.values())


def _own_fate(process: ProcessReport) -> Hashable:
    return (process.role, ending(process), process.by, process.host, is_worker(process), leaves_nothing(process))


def _alike_anywhere(process: ProcessReport) -> Hashable:
    """Each host has its own launcher, with its own pid."""
    return (process.role, ending(process), _sender_name(process.by), is_worker(process), leaves_nothing(process))


def _sender_name(by: str | None) -> str:
    match = _SENDER.fullmatch(by or "")
    return match[1] if match else by or ""


def _without_room(fates: Sequence[Fate], most: int, always: Sequence[Fate]) -> list[Fate]:
    """The smallest ones; of each role the largest stays."""
    if len(fates) <= most:
        return []
    largest: dict[str, Fate] = {}
    for fate in fates:
        if fate.role not in largest or len(fate.members) > len(largest[fate.role].members):
            largest[fate.role] = fate
    kept = {id(fate) for fate in (*largest.values(), *always)}
    spare = sorted((fate for fate in fates if id(fate) not in kept), key=lambda fate: -len(fate.members))
    return spare[max(most - len(kept), 0) :]


def _with_workers_below(fates: Sequence[Fate]) -> list[Fate]:
    place = {
        process.rank: index
        for index, fate in enumerate(fates)
        if not is_worker(fate.members[0])
        for process in fate.members
        if process.rank is not None
    }
    below: dict[int, list[Fate]] = {}
    for index, fate in enumerate(fates):  # the first stays where it is
        member = fate.members[0]
        if index and is_worker(member) and member.rank in place:
            below.setdefault(place[member.rank], []).append(msgspec.structs.replace(fate, below=True))
    moved = {id(member) for those in below.values() for fate in those for member in fate.members[:1]}
    ordered: list[Fate] = []
    for index, fate in enumerate(fates):
        if id(fate.members[0]) not in moved:
            ordered += [fate, *below.get(index, [])]
    return ordered


def _missing(diagnosis: Diagnosis) -> Fate:
    ranks = sorted(set(diagnosis.missing))
    them = "them" if len(ranks) > 1 else "it"
    places = [name(place) for place in diagnosis.missing_on]
    more = f" and {len(places) - MOST_HOSTS} more" if len(places) > MOST_HOSTS else ""
    where = f"; ran on {', '.join(places[:MOST_HOSTS])}{more}" if places else ""
    return Fate(_ranks(ranks), MISSING, f"nothing here is known of {them}{where}")


def _extent(diagnosis: Diagnosis, hosts: Sequence[str]) -> str:
    """As "8 on gpu-07", "9999 of 10000 on 1250 hosts"."""
    known = {process.rank for process in diagnosis.processes if process.rank is not None}
    count = str(len(known)) if known else str(len(diagnosis.processes))
    if known and diagnosis.world_size is not None and diagnosis.world_size > len(known):
        count += f" of {diagnosis.world_size}"
    if not hosts:
        return count
    return f"{count} on {name(hosts[0])}" if len(hosts) == 1 else f"{count} on {len(hosts)} hosts"


def _how(members: Sequence[ProcessReport]) -> str:
    """ "ended by SIGTERM from 17987 (torchrun)", "exited with status 1, ended by mp.spawn"."""
    process = members[0]
    if leaves_nothing(process):
        return f"nothing here is known of {'it' if len(members) == 1 else 'them'}"
    how = ending(process)
    senders = list(dict.fromkeys(member.by for member in members if member.by))
    if not senders:
        return how
    by = name(senders[0]) if len(senders) == 1 else f"each host's {name(_sender_name(senders[0]))}"
    if process.exit.signal:
        return f"{how} from {by}"
    return f"{how} by {by}" if how == "ended" else f"{how}, ended by {by}"


def names(members: Sequence[ProcessReport], *, with_host: bool) -> str:
    """As "rank 3 (pid 50) on gpu-07", "ranks 0-2, 4-7", "4 workers of rank 0"."""
    if len(members) == 1:
        process = members[0]
        return who(process if with_host else msgspec.structs.replace(process, host=None))
    there = _there([process.host for process in members]) if with_host else ""
    ranks = sorted({process.rank for process in members if process.rank is not None})
    if is_worker(members[0]):
        of = f"of {_ranks(ranks)}" if ranks else "of the job"
        return f"{len(members)} workers {of}{there}"
    unnamed = [str(process.pid) for process in members if process.rank is None]
    parts = [_ranks(ranks)] if ranks else []
    if unnamed:
        more = f" and {len(unnamed) - MOST_NAMED} more" if len(unnamed) > MOST_NAMED else ""
        parts.append(f"pid{'s' if len(unnamed) > 1 else ''} {', '.join(unnamed[:MOST_NAMED])}{more}")
    return " and ".join(parts) + there


def _there(hosts: Sequence[str | None]) -> str:
    known = list(dict.fromkeys(host for host in hosts if host))
    if not known:
        return ""
    return f" on {', '.join(map(name, known))}" if len(known) <= MOST_HOSTS else f" on {len(known)} hosts"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"


def ranges(numbers: Sequence[int], most: int = MOST_RUNS) -> str:
    """As "0-2, 4-7", of sorted numbers without repeats; "0, 2, ..., 98 (50 in all)" where there are too many runs."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    if len(runs) <= most:
        return ", ".join(map(_run, runs))
    return ", ".join([*map(_run, runs[: most - 1]), "...", f"{_run(runs[-1])} ({len(numbers)} in all)"])


def _run(run: Sequence[int]) -> str:
    # Two neighbours are a list; "0-1" saves nothing.
    return f"{run[0]}{', ' if run[-1] == run[0] + 1 else '-'}{run[-1]}" if len(run) > 1 else str(run[0])


def first_time(diagnosis: Diagnosis) -> float | None:
    """When the process that the report is about ended, which the others' times are counted from."""
    first = root(diagnosis)
    return first.time if first is not None and not nobody_here(diagnosis) else None


def later(members: Sequence[ProcessReport], began: float | None) -> str:
    """As ", 1.9 s later", ", 1.9 s to 2.4 s later", or nothing. began: seconds since the epoch."""
    times = sorted(process.time - began for process in members if process.time is not None) if began is not None else []
    if not times:
        return ""
    words = list(dict.fromkeys(time_text(abs(seconds)) for seconds in (times[0], times[-1])))
    if times[0] < 0 <= times[-1]:
        return f", {time_text(-times[0])} before to {time_text(times[-1])} after"
    if times[0] < 0:
        words.reverse()
    return f", {' to '.join(words)} {'earlier' if times[0] < 0 else 'later'}"

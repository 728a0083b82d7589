"""The last minute of a process's memory: against which limit, how full, how fast it grew, who held it.

Which curve is shown depends on what the process could have been killed for: the group whose limit was hit, the whole
machine, or, when no limit is near, the process's own memory. A group's usage contains page cache, which the kernel
drops before it kills anybody; when cache hides the rise, the curve without it is shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.diagnose.ring_end import ring_end, ring_name
from ftforensics.diagnose.rise import Curve, final_rise
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death, OomMatch, Tie
from ftforensics.model.diagnosis import CurvePoint, Holder, MemoryHistory
from ftforensics.model.kernel import OomKill
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.model.ring import FastSample, Ring
from ftforensics.parsers.cgroup_path import memory_path

SPAN = 60.0  # seconds before the end
MOST_POINTS = 240
MOST_HOLDERS = 8
UNLIMITED = 1 << 62  # cgroup v1 writes "no limit" as the largest multiple of the page size below 2**63
TIGHT = 0.9  # of the machine's memory in use: then the machine is what matters, whatever the group's limit
MUCH_CACHE = 0.25  # of the usage
LEAST_SHARE = 0.10  # of the largest growth among the ranks: less is not "growing together"
LEAST_GROWTH = 4 << 20
LONG_GONE = 5.0  # seconds: a process whose last sample is that much older holds nothing any more
_WHOLE_MACHINE = ("earlyoom", "ray", "kubernetes")  # they kill for the machine's memory


class _Subject(msgspec.Struct, frozen=True):
    """What the curve is of. kind: "group", "cacheless" (a group without its page cache), "machine" or "own"."""

    kind: str
    group: str | None = None
    limit: int | None = None
    limit_of: str | None = None


class _Recorded(msgspec.Struct, frozen=True):
    """The rings of this boot. ring: the one whose samples stand for the process; own: it is the process's."""

    death: Death
    ring: Ring | None
    own: bool
    others: list[Ring]

    @property
    def rings(self) -> list[Ring]:
        """Its own first. On one node one rank alone reads what is the same for all of them."""
        return [self.ring, *self.others] if self.ring is not None else self.others


def memory_history(death: Death, rings: Sequence[Ring]) -> MemoryHistory | None:
    """None when neither a ring nor the kernel's log says anything about memory. rings: those of the case, of
    which other machines' and boots' are left out."""
    recorded = _recorded(death, rings)
    subject = _subject(recorded)
    curve = _curve(recorded, subject)
    cache = _page_cache(recorded, subject)
    rise = final_rise(curve)
    if rise is None or rise.trend != "rising":
        for other, hidden in _alternatives(recorded, subject, cache):
            found = final_rise(hidden)
            if found is not None and found.trend == "rising":
                subject, curve, rise = other, hidden, found
                break
    holders = _holders(recorded)
    if not curve and not holders and subject.limit is None:
        return None
    end = ring_end(death, recorded.ring, curve[-1][0]) if recorded.ring is not None and curve else None
    at = end.at if end is not None else 0.0
    kill = _kill(death)
    used = curve[-1][1] if curve else (kill.usage if kill is not None else None)
    rising = rise if rise is not None and rise.trend == "rising" else None
    grew, ranks = _grew_together(recorded, curve[rising.start][0], curve[rising.stop][0]) if rising else (None, None)
    return MemoryHistory(
        quantity=_quantity(subject),
        points=[CurvePoint(round(max(at - time, 0.0), 4), used) for time, used in _thinned(curve, at)],
        limit=subject.limit,
        limit_of=subject.limit_of,
        growth=rising.growth if rising else None,
        since=at - curve[rising.start][0] if rising else None,
        until=at - curve[rising.stop][0] if rising else None,
        started_at=curve[rising.start][1] if rising else None,
        used=used,
        last_age=end.at - curve[-1][0] if end is not None and end.known else None,
        ranks=ranks,
        rising=grew,
        holders=holders,
        ring=death.ring_path if recorded.own else None,
        trend=rise.trend if rise is not None else None,
        page_cache=cache if subject.kind != "own" else None,
        full=used / subject.limit if used is not None and subject.limit and subject.kind != "own" else None,
    )


def _recorded(death: Death, rings: Sequence[Ring]) -> _Recorded:
    """A worker without a ring of its own shares the groups and the machine of the rank that made it."""
    boot = death.boot_id or (death.ring.process.boot_id if death.ring is not None else None)
    host = death.host or (death.ring.process.host if death.ring is not None else None)
    here = [ring for ring in rings if ring is not death.ring and _same_machine(ring, boot, host)]
    if death.ring is not None:
        return _Recorded(death, death.ring, True, here)
    parent = next((ring for ring in here if death.worker_of is not None and ring.process.pid == death.worker_of), None)
    return _Recorded(death, parent, False, [ring for ring in here if ring is not parent])


def _same_machine(ring: Ring, boot: str | None, host: str | None) -> bool:
    """Monotonic clocks compare within one boot only, so what is not known to share it is left out."""
    if boot is not None and ring.process.boot_id is not None:
        return ring.process.boot_id == boot
    return host is not None and ring.process.host == host


def _kill(death: Death) -> OomKill | None:
    match = _record(death)
    return match.kill if match is not None else None


def _record(death: Death) -> OomMatch | None:
    """The kernel's record of this kill; one that merely may be about this process says nothing of its memory."""
    for one in death.oom:
        unsure = one.match.tie is Tie.WEAK or (one.match.tie is Tie.STRONG and one.match.against)
        if not unsure and not one.kill.line.forgeable:
            return one
    return None


# What the curve is of


def _subject(recorded: _Recorded) -> _Subject:
    chain = _chain(recorded)
    total = _machine_size(recorded)
    match = _record(recorded.death)
    if match is not None and match.kill.scope == "memcg":
        return _subject_of_kill(match, chain)
    if (match is not None and match.kill.scope == "host") or _killed_for_machine(recorded.death):
        return _Subject("machine", limit=total, limit_of="the whole machine")
    tightest = min((group for group in chain if _limit(group)), key=lambda group: _limit(group) or 0, default=None)
    fullness = _machine_fullness(recorded, total)
    if fullness is not None and fullness >= TIGHT and fullness > _fullness(tightest):
        return _Subject("machine", limit=total, limit_of="the whole machine")
    if tightest is not None and (total is None or (_limit(tightest) or 0) < total):
        return _Subject("group", tightest.path, _limit(tightest), tightest.path)
    return _Subject("own")


def _subject_of_kill(match: OomMatch, chain: Sequence[GroupReading]) -> _Subject:
    """The kernel's path begins at the real root, the process's own may begin at its cgroup namespace's."""
    kill = match.kill
    limit, group = kill.limit, kill.limit_group
    same = next((one for one in chain if one.path == group), None)
    same = same or next((one for one in chain if group and one.path != "/" and group.endswith(one.path)), None)
    same = same or next((one for one in chain if limit is not None and one.limit == limit), None)
    if same is None and match.own_group and chain:
        same = chain[0]
    name = group or (same.path if same is not None else None)
    if same is None:
        return _Subject("own", limit=limit, limit_of=name)
    return _Subject("group", same.path, limit if limit is not None else _limit(same), name)


def _killed_for_machine(death: Death) -> bool:
    return any(
        match.notice.authority in _WHOLE_MACHINE and match.notice.kind in ("killed", "evicted")
        for match in death.notices
    )


def _chain(recorded: _Recorded) -> list[GroupReading]:
    """The groups from the process's own upwards, as last read."""
    readings = [slow.reading for ring in recorded.rings for slow in reversed(ring.slow) if slow.reading]
    last = recorded.death.last_reading
    own = _own_group(recorded)
    for reading in [*readings, *([last] if last is not None else [])]:
        if reading.groups and (own is None or reading.groups[0].path == own):
            return reading.groups
    return []


def _own_group(recorded: _Recorded) -> str | None:
    if recorded.death.groups:
        return recorded.death.groups[0]
    if recorded.ring is None:
        return None
    if (path := memory_path(recorded.ring.process.cgroup)) is not None:
        return path
    return next(
        (slow.reading.groups[0].path for slow in recorded.ring.slow if slow.reading and slow.reading.groups), None
    )


def _limit(group: GroupReading | None) -> int | None:
    if group is None or group.limit is None or group.limit >= UNLIMITED:
        return None
    return group.limit


def _fullness(group: GroupReading | None) -> float:
    limit = _limit(group)
    return (group.usage or 0) / limit if group is not None and limit else 0.0


def _machine_fullness(recorded: _Recorded, total: int | None) -> float | None:
    samples = recorded.ring.fast if recorded.ring is not None else []
    if not total or not samples or samples[-1].available is None:
        return None
    return (total - samples[-1].available) / total


def _machine_size(recorded: _Recorded) -> int | None:
    readings: list[Reading | None] = [slow.reading for ring in recorded.rings for slow in reversed(ring.slow)]
    readings.append(recorded.death.last_reading)
    return next((reading.mem_total for reading in readings if reading is not None and reading.mem_total), None)


def _quantity(subject: _Subject) -> str:
    if subject.kind == "group":
        return f"memory of {subject.group}"
    if subject.kind == "cacheless":
        return f"memory of {subject.group} without page cache"
    return "memory in use on the machine" if subject.kind == "machine" else "this process's own memory"


# The curves


def _curve(recorded: _Recorded, subject: _Subject) -> list[tuple[float, int]]:
    ring = recorded.ring
    if subject.kind == "machine":
        total = subject.limit
        fast = ring.fast if ring is not None else []
        used = [(one.at, total - one.available) for one in fast if total and one.available is not None]
    elif subject.kind == "group":
        if (
            ring is not None
            and subject.group == _own_group(recorded)
            and any(one.usage is not None for one in ring.fast)
        ):
            used = [(one.at, one.usage) for one in ring.fast if one.usage is not None]
        else:
            used = [(at, group.usage) for at, group in _read(recorded, subject.group) if group.usage is not None]
    else:
        used = _of_process(recorded)
    return _last_minute(used)


def _of_process(recorded: _Recorded) -> list[tuple[float, int]]:
    """The process's own memory: from its ring, else as its parent's recorder saw it."""
    ring = recorded.ring
    if ring is None:
        return []
    if recorded.own:
        return _own(ring.fast)
    pid = recorded.death.pid
    return [(slow.at, child.rss) for slow in ring.slow for child in slow.children if child.pid == pid and child.rss]


def _own(fast: Sequence[FastSample]) -> list[tuple[float, int]]:
    """Anonymous and shared memory: pages of files can be dropped, and seldom kill anybody."""
    return [(one.at, one.rss_anon + (one.rss_shmem or 0)) for one in fast if one.rss_anon is not None]


def _read(recorded: _Recorded, path: str | None) -> list[tuple[float, GroupReading]]:
    """The slow samples of one group, whichever rank took them."""
    return sorted(
        (
            (slow.at, group)
            for ring in recorded.rings
            for slow in ring.slow
            if slow.reading
            for group in slow.reading.groups
            if group.path == path
        ),
        key=lambda pair: pair[0],
    )


def _last_minute(curve: Curve) -> list[tuple[float, int]]:
    return [point for point in curve if point[0] >= curve[-1][0] - SPAN]


def _alternatives(
    recorded: _Recorded, subject: _Subject, cache: int | None
) -> Iterator[tuple[_Subject, list[tuple[float, int]]]]:
    """Other curves that may show a rise which the first one hides: usage stands at the limit while cache gives way."""
    if subject.kind == "group" and cache is not None:
        held = [
            (at, group.anon + (group.shmem or 0))
            for at, group in _read(recorded, subject.group)
            if group.anon is not None
        ]
        yield msgspec.structs.replace(subject, kind="cacheless"), _last_minute(held)
    if subject.kind == "group":
        yield msgspec.structs.replace(subject, kind="own"), _last_minute(_of_process(recorded))


def _page_cache(recorded: _Recorded, subject: _Subject) -> int | None:
    """Bytes of the group's usage that could have been dropped, when that is much. Both versions of memory.stat count
    shared memory as cache too, which cannot be dropped (kernel's Documentation/admin-guide/cgroup-v2.rst)."""
    if subject.kind != "group":
        return None
    for _, group in reversed(_read(recorded, subject.group)):
        if group.file is not None:
            cache = group.file - (group.shmem or 0)
            return cache if group.usage and cache > MUCH_CACHE * group.usage else None
    return None


def _thinned(curve: Curve, end: float) -> list[tuple[float, int]]:
    """The highest of each stretch of time, and the last: a peak must not be lost."""
    if len(curve) <= MOST_POINTS:
        return list(curve)
    stretch = SPAN / (MOST_POINTS - 1)
    highest: dict[int, tuple[float, int]] = {}
    for at, used in curve[:-1]:
        place = int((end - at) / stretch)
        if place not in highest or used > highest[place][1]:
            highest[place] = (at, used)
    return [*sorted(highest.values()), curve[-1]]


# Who else


def _grew_together(recorded: _Recorded, begin: float, stop: float) -> tuple[int | None, int | None]:
    """(how many ranks of this machine grew in that time, how many were recorded then)."""
    if not recorded.own or recorded.ring is None or recorded.ring.process.rank is None:
        return None, None
    growths: dict[int, int] = {}
    for ring in recorded.rings:
        rank, worker = ring.process.rank, ring.process.worker_of
        if rank is None or worker is not None or rank in growths:
            continue
        before, after = _own_at(ring.fast, begin), _own_at(ring.fast, stop)
        if after is not None and after[0] > begin:
            first = before or next(iter(_own(ring.fast[:1])), after)
            growths[rank] = after[1] - first[1]
    if len(growths) < 2:
        return None, None
    least = max(LEAST_GROWTH, LEAST_SHARE * max(growths.values()))
    return sum(growth >= least for growth in growths.values()), len(growths)


def _own_at(fast: Sequence[FastSample], time: float) -> tuple[float, int] | None:
    """The last sample up to that time."""
    place = bisect_right(fast, time, key=lambda sample: sample.at)
    return next(iter(_own(fast[place - 1 : place])), None) if place else None


def _holders(recorded: _Recorded) -> list[Holder]:
    """The kernel's own table where there is one: it is of the moment of the kill. Else the last samples."""
    held = list(_from_table(recorded)) or list(_from_rings(recorded))
    by_pid: dict[int | None, Holder] = {}
    for holder in held:
        by_pid.setdefault(holder.pid, holder)
    return sorted(by_pid.values(), key=lambda holder: -holder.rss)[:MOST_HOLDERS]


def _from_table(recorded: _Recorded) -> Iterator[Holder]:
    match = _record(recorded.death)
    if match is None:
        return
    ranks = {pid: ring.process.rank for ring in recorded.rings for pid in _host_pids(ring)}
    if recorded.death.rank is not None:
        ranks[match.kill.pid] = recorded.death.rank
    for task in match.kill.tasks:
        if task.rss:
            text = f"task table: pid {task.pid} {task.name} had {task.rss} bytes resident"
            yield Holder(
                task.pid, task.name, task.rss, ranks.get(task.pid), Cite(match.cite.source, match.cite.locator, text)
            )


def _host_pids(ring: Ring) -> list[int]:
    """The kernel's table has the pids of the initial namespace."""
    return ring.process.nspid[:1] or [ring.process.pid]


def _from_rings(recorded: _Recorded) -> Iterator[Holder]:
    children: list[Holder] = []
    now = recorded.ring.fast[-1].at if recorded.ring is not None and recorded.ring.fast else None
    for ring in recorded.rings:
        if now is not None and ring.fast and ring.fast[-1].at < now - LONG_GONE:
            continue
        path = recorded.death.ring_path if ring is recorded.death.ring else None
        name = ring_name(ring, path)
        if ring.fast and (rss := _resident(ring.fast[-1])):
            cite = Cite("ring", f"{name} fast[{len(ring.fast) - 1}]", f"{rss} bytes resident at the last sample")
            yield Holder(ring.process.pid, ring.process.comm, rss, ring.process.rank, cite)
        for index in range(len(ring.slow) - 1, -1, -1):
            if ring.slow[index].children:
                for child in ring.slow[index].children:
                    cite = Cite("ring", f"{name} slow[{index}]", f"child {child.pid}: {child.rss} bytes resident")
                    children += [Holder(child.pid, child.comm, child.rss, None, cite)] if child.rss else []
                break
    yield from children


def _resident(sample: FastSample) -> int:
    return (sample.rss_anon or 0) + (sample.rss_file or 0) + (sample.rss_shmem or 0)

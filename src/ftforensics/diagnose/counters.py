"""The machine's counters before and after an end: the change says that somebody was killed for memory, or nobody."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

import msgspec

from ftforensics.diagnose.clocks import Clocks, clocks_of_run
from ftforensics.model.basics import Cite
from ftforensics.model.case import Case
from ftforensics.model.death import CounterChange, Death
from ftforensics.model.reading import GroupReading, Reading

_COUNTERS = ("oom_kill", "oom", "oom_group_kill", "local_oom", "local_oom_kill", "max_events", "failcnt")


class Counters:
    """Every reading of a case by boot and group, in time order. A case of many ranks holds hundreds of thousands, of
    which a death needs the last before it and the first after it."""

    def __init__(self, case: Case) -> None:
        self._boots: dict[str, _Boot] = {}
        for reading in case.readings:
            self._add(reading, reading.moment.boot_id, reading.moment.monotonic, None)
        for run in case.runs:
            clocks = clocks_of_run(run)
            for counted in run.counted:
                locator = counted.reading.locator or f"{run.path or 'evidence.jsonl'} ({counted.why})"
                self._add(counted.reading, clocks.boot_id, counted.at, _Source("run", locator, clocks))
        for one in case.rings:
            boot = one.ring.process.boot_id
            clocks = Clocks(one.ring.clocks, boot)
            for index, sample in enumerate(one.ring.slow):
                if sample.reading is not None:
                    source = _Source("ring", f"{one.path or 'ring'} slow[{index}]", clocks)
                    self._add(sample.reading, boot, sample.at, source)
        for boot_readings in self._boots.values():
            boot_readings.sort()

    def _add(self, reading: Reading, boot: str | None, at: float | None, source: _Source | None) -> None:
        if boot is not None:
            self._boots.setdefault(boot, _Boot()).add(_Taken(at, reading, source))

    def changes(self, death: Death) -> tuple[Reading | None, list[CounterChange]]:
        """(the last reading while it lived, the counters before and after). Nothing for a process that still runs."""
        boot = self._boots.get(death.boot_id) if death.boot_id is not None else None
        if death.alive or boot is None:
            return None, []
        last = boot.any.last_before(death)
        found: list[CounterChange] = []
        for path in death.groups:
            for counter in _COUNTERS if path in boot.groups else ():
                found += _change(counter, path, boot.of(counter, path), death)
        found += _machine(boot.machine, death)
        return (last.reading() if last is not None else None), found


class _Source(msgspec.Struct, frozen=True):
    name: str
    locator: str
    clocks: Clocks


class _Taken(msgspec.Struct, frozen=True):
    """A reading and when it was taken. source: of one whose moment is given by the clocks of its file."""

    at: float | None
    raw: Reading
    source: _Source | None

    def reading(self) -> Reading:
        if self.source is None or self.at is None:
            return self.raw
        moment = self.source.clocks.at(self.at)
        return msgspec.structs.replace(self.raw, moment=moment, source=self.source.name, locator=self.source.locator)

    @property
    def name(self) -> str:
        return self.source.name if self.source is not None else self.raw.source


class _Series:
    """Readings of one boot in time order."""

    def __init__(self) -> None:
        self._taken: list[_Taken] = []
        self._times: list[float] = []
        self._now: list[_Taken] = []

    def add(self, taken: _Taken) -> None:
        self._taken.append(taken)

    def sort(self) -> None:
        self._now = sorted((one for one in self._taken if one.name == "now"), key=lambda one: one.at or float("-inf"))
        self._taken = sorted((one for one in self._taken if one.at is not None), key=lambda one: one.at or 0.0)
        self._times = [one.at or 0.0 for one in self._taken]

    def having(self, wanted: Callable[[Reading], object]) -> _Series:
        found = _Series()
        found._taken = [one for one in self._taken if wanted(one.raw) is not None]
        found._now = [one for one in self._now if wanted(one.raw) is not None]
        found._times = [one.at or 0.0 for one in found._taken]
        return found

    def last_before(self, death: Death) -> _Taken | None:
        """Taken before the end can have begun. A killed process takes up to seconds to be gone, so the time of its end
        is no bound; its last own sample is."""
        if death.earliest.monotonic is not None:
            bound = death.earliest.monotonic + 0.001
        elif death.when.monotonic is not None:
            bound = death.when.monotonic - 5.0
        else:
            return None
        place = bisect_right(self._times, bound) - 1
        return self._taken[bisect_left(self._times, self._times[place])] if place >= 0 else None

    def first_after(self, death: Death) -> _Taken | None:
        if death.when.monotonic is None:
            # Nobody saw the end; a reading made now, of a process that is gone, comes after it.
            return self._now[0] if self._now else None
        place = bisect_left(self._times, death.when.monotonic)
        return self._taken[place] if place < len(self._taken) else None


class _Boot:
    """The readings of one boot: all, those that count the machine's kills, and those of each group."""

    def __init__(self) -> None:
        self.any = _Series()
        self.machine = _Series()
        self.groups: dict[str, _Series] = {}
        self._counted: dict[tuple[str, str], _Series] = {}

    def of(self, counter: str, path: str) -> _Series:
        """The readings that have this counter of this group."""
        if (counter, path) not in self._counted:
            self._counted[counter, path] = self.groups[path].having(lambda reading: _group(reading, counter, path))
        return self._counted[counter, path]

    def add(self, taken: _Taken) -> None:
        self.any.add(taken)
        if taken.raw.oom_kill is not None:
            self.machine.add(taken)
        for path in {group.path for group in taken.raw.groups}:
            self.groups.setdefault(path, _Series()).add(taken)

    def sort(self) -> None:
        for series in (self.any, self.machine, *self.groups.values()):
            series.sort()


def _change(counter: str, path: str, series: _Series, death: Death) -> list[CounterChange]:
    one, other = series.last_before(death), series.first_after(death)
    group, same = _group(one.raw, counter, path) if one else None, _group(other.raw, counter, path) if other else None
    if group is None or same is None or other is None:
        return []
    if None not in (group.inode, same.inode) and group.inode != same.inode:
        return []  # another group under the same name
    old, new = getattr(group, counter), getattr(same, counter)
    if new < old:
        return []  # counts from zero again: made anew
    file = "memory.events"
    if group.version == 1:
        file = "memory.failcnt" if counter == "failcnt" else "memory.oom_control"
    elif counter.startswith("local_"):
        file += ".local"
    name = counter.removeprefix("local_")
    text = f"{name} {old} -> {new} in {path}"
    return [
        CounterChange(
            counter, path, old, new, True, Cite("cgroup", f"{file} ({other.name})", text), path == death.groups[0]
        )
    ]


def _group(reading: Reading, counter: str, path: str) -> GroupReading | None:
    return next((one for one in reading.groups if one.path == path and getattr(one, counter) is not None), None)


def _machine(series: _Series, death: Death) -> list[CounterChange]:
    one, other = series.last_before(death), series.first_after(death)
    if one is None or other is None:
        return []
    first, second = one.raw.oom_kill, other.raw.oom_kill
    if first is None or second is None or second < first:
        return []
    text = f"oom_kill {first} -> {second} on this machine"
    cite = Cite("vmstat", f"/proc/vmstat ({other.name})", text)
    return [CounterChange("vmstat oom_kill", None, first, second, True, cite)]

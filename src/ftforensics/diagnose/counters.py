"""The machine's counters before and after an end: the change says that somebody was killed for memory, or nobody."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.diagnose.clocks import Clocks, clocks_of_run, seconds_between
from ftforensics.model.basics import Cite
from ftforensics.model.case import Case
from ftforensics.model.death import CounterChange, Death
from ftforensics.model.reading import GroupReading, Reading

_COUNTERS = ("oom_kill", "oom", "oom_group_kill", "local_oom", "local_oom_kill", "max_events", "failcnt")


def readings_of(case: Case) -> list[Reading]:
    """Every reading of the case with its moment, in no order."""
    found = list(case.readings)
    for run in case.runs:
        clocks = clocks_of_run(run)
        for counted in run.counted:
            locator = counted.reading.locator or f"{run.path or 'evidence.jsonl'} ({counted.why})"
            moment = clocks.at(counted.at)
            found.append(msgspec.structs.replace(counted.reading, moment=moment, source="run", locator=locator))
    for one in case.rings:
        clocks = Clocks(one.ring.clocks, one.ring.process.boot_id)
        for index, sample in enumerate(one.ring.slow):
            if sample.reading is not None:
                moment = clocks.at(sample.at)
                locator = f"{one.path or 'ring'} slow[{index}]"
                found.append(msgspec.structs.replace(sample.reading, moment=moment, source="ring", locator=locator))
    return found


def changes(death: Death, readings: Sequence[Reading]) -> tuple[Reading | None, list[CounterChange]]:
    """(the last reading while it lived, the counters before and after). Nothing for a process that still runs."""
    if death.alive or death.boot_id is None:
        return None, []
    ours = [reading for reading in readings if reading.moment.boot_id == death.boot_id]
    before = [reading for reading in ours if _while_alive(reading, death)]
    after = [reading for reading in ours if _after_end(reading, death)]
    last = max(before, key=_time, default=None)
    found: list[CounterChange] = []
    for path in death.groups:
        for counter in _COUNTERS:
            found += _change(counter, path, before, after, death)
    found += _machine(before, after)
    return last, found


def _change(
    counter: str, path: str, before: Sequence[Reading], after: Sequence[Reading], death: Death
) -> list[CounterChange]:
    one = _latest(before, counter, path)
    other = _earliest(after, counter, path)
    if one is None or other is None:
        return []
    (_, group), (second, same) = one, other
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
            counter, path, old, new, True, Cite("cgroup", f"{file} ({second.source})", text), path == death.groups[0]
        )
    ]


def _machine(before: Sequence[Reading], after: Sequence[Reading]) -> list[CounterChange]:
    first = max((reading for reading in before if reading.oom_kill is not None), key=_time, default=None)
    second = min((reading for reading in after if reading.oom_kill is not None), key=_time, default=None)
    if first is None or second is None or first.oom_kill is None or second.oom_kill is None:
        return []
    if second.oom_kill < first.oom_kill:
        return []
    text = f"oom_kill {first.oom_kill} -> {second.oom_kill} on this machine"
    cite = Cite("vmstat", f"/proc/vmstat ({second.source})", text)
    return [CounterChange("vmstat oom_kill", None, first.oom_kill, second.oom_kill, True, cite)]


def _latest(readings: Sequence[Reading], counter: str, path: str) -> tuple[Reading, GroupReading] | None:
    return max(_having(readings, counter, path), key=lambda pair: _time(pair[0]), default=None)


def _earliest(readings: Sequence[Reading], counter: str, path: str) -> tuple[Reading, GroupReading] | None:
    return min(_having(readings, counter, path), key=lambda pair: _time(pair[0]), default=None)


def _having(readings: Sequence[Reading], counter: str, path: str) -> list[tuple[Reading, GroupReading]]:
    return [
        (reading, group)
        for reading in readings
        for group in reading.groups
        if group.path == path and getattr(group, counter) is not None
    ]


def _while_alive(reading: Reading, death: Death) -> bool:
    """Taken before the end can have begun. A killed process takes up to seconds to be gone, so the time of its end is
    no bound; its last own sample is."""
    bound = death.earliest if death.earliest.monotonic is not None else death.when
    apart = seconds_between(reading.moment, bound)
    if apart is None:
        return False
    return apart[0] >= (-0.001 if bound is death.earliest else 5.0)


def _after_end(reading: Reading, death: Death) -> bool:
    if death.when.monotonic is not None:
        apart = seconds_between(death.when, reading.moment)
        return apart is not None and apart[0] >= 0
    # Nobody saw the end; a reading made now, of a process that is gone, comes after it.
    return reading.source == "now"


def _time(reading: Reading) -> float:
    return reading.moment.monotonic if reading.moment.monotonic is not None else float("-inf")

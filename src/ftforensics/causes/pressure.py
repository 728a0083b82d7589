"""How full memory was at the last look before the end: of the own group, of each group above, of the machine."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ftforensics.causes.ending import seconds_before_end
from ftforensics.causes.sizes import size_text, time_text
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.moment import Moment
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.model.ring import FastSample, Ring

FULL = 0.97
FRESH = 2.0  # seconds
# Page cache is given back before anybody is killed: a group that is full of it is not short of memory.
_MOSTLY_CACHE = 0.30
_TREND = 5.0  # seconds over which growth is taken
# cgroup v1 shows "no limit" as the largest multiple of a page; anything above this many bytes is none.
_NO_LIMIT = 1 << 60

_Value = Callable[[FastSample], int | None]


class Pressure(msgspec.Struct, frozen=True):
    """scope: "own", "above" or "machine"; name: the group's path, or "this machine"; used, limit: bytes; age: seconds
    before the end, None when no clock tells; growth: bytes a second over the last seconds; cache: bytes that could
    have been given back, None when not known."""

    scope: str
    name: str
    used: int
    limit: int
    cite: Cite
    age: float | None = None
    growth: float | None = None
    cache: int | None = None

    @property
    def fraction(self) -> float:
        return self.used / self.limit

    @property
    def is_cache(self) -> bool:
        """Much of it could have been given back, so that being full says little."""
        return self.cache is not None and self.cache >= _MOSTLY_CACHE * self.limit

    @property
    def full(self) -> bool:
        """Full at a look that is recent enough to count."""
        return self.fraction >= FULL and self.age is not None and self.age <= FRESH and not self.is_cache

    @property
    def reached_by_now(self) -> bool:
        """Would the last growth, gone on until the end, have passed the limit?"""
        if self.fraction >= FULL:
            return True
        return bool(self.growth and self.age and self.growth > 0 and self.used + self.growth * self.age >= self.limit)


def pressures(death: Death) -> list[Pressure]:
    """The fullest first."""
    reading = death.last_reading or _from_ring(death.ring)
    if reading is None:
        return []
    found = []
    for index, group in enumerate(reading.groups):
        # A reading that another process made starts with that one's group.
        if death.groups and group.path not in death.groups:
            continue
        one = _of_group(death, reading, group, group.path == death.groups[0] if death.groups else index == 0)
        if one is not None:
            found.append(one)
    machine = _of_machine(death, reading)
    if machine is not None:
        found.append(machine)
    return sorted(found, key=lambda one: one.fraction, reverse=True)


def has_no_limit(death: Death) -> bool:
    """Is it known that no group above the process, nor its own, has a limit?"""
    reading = death.last_reading or _from_ring(death.ring)
    groups = [one for one in (reading.groups if reading else []) if not death.groups or one.path in death.groups]
    return bool(groups) and all(_real(group.limit) is None for group in groups)


def _from_ring(ring: Ring | None) -> Reading | None:
    slow = ring.slow if ring is not None else []
    return next((sample.reading for sample in reversed(slow) if sample.reading is not None), None)


def _of_group(death: Death, reading: Reading, group: GroupReading, own: bool) -> Pressure | None:
    limit, used, moment = _real(group.limit), group.usage, reading.moment
    locator = reading.locator or reading.source
    rise = None
    if own:
        rise = _trend(death.ring, _usage)
        fast = _last(death.ring, _usage)
        if fast is not None and death.ring is not None and _newer(fast, moment):
            used, moment = fast.usage, _moment(death.ring, fast.at)
            locator = death.ring_path or "recorder"
    if limit is None or used is None or limit <= 0:
        return None
    # "file" (version 2) and "cache" (version 1) count shared memory too, which nobody can give back.
    cache = None if group.file is None else max(group.file - (group.shmem or 0), 0)
    return _pressure(death, "own" if own else "above", group.path, used, limit, moment, locator, rise, cache)


def _of_machine(death: Death, reading: Reading) -> Pressure | None:
    total, available, moment = reading.mem_total, reading.mem_available, reading.moment
    locator = reading.locator or reading.source
    fast = _last(death.ring, _available)
    if fast is not None and death.ring is not None and _newer(fast, moment):
        available, moment = fast.available, _moment(death.ring, fast.at)
        locator = death.ring_path or "recorder"
    if not total or available is None:
        return None
    fall = _trend(death.ring, _available)
    used = max(total - available, 0)
    rise = -fall if fall else None
    return _pressure(death, "machine", "this machine", used, total, moment, locator, rise, None)


def _pressure(
    death: Death,
    scope: str,
    name: str,
    used: int,
    limit: int,
    moment: Moment,
    locator: str,
    rise: float | None,
    cache: int | None,
) -> Pressure:
    age = seconds_before_end(death, moment)
    when = f", {time_text(age)} before the end" if age is not None else ", at the last sample"
    grows = f", growing by {size_text(rise)}/s" if rise and rise > 0 else ""
    caching = f", {size_text(cache)} of it page cache" if cache and cache >= _MOSTLY_CACHE * limit else ""
    text = f"memory of {name}: {size_text(used)} of {size_text(limit)} ({used / limit:.0%}{caching}){when}{grows}"
    source = "ring" if death.ring is not None else "counters"
    return Pressure(scope, name, used, limit, Cite(source, locator, text), age, rise, cache)


def _real(limit: int | None) -> int | None:
    return limit if limit is not None and limit < _NO_LIMIT else None


def _usage(sample: FastSample) -> int | None:
    return sample.usage


def _available(sample: FastSample) -> int | None:
    return sample.available


def _last(ring: Ring | None, value: _Value) -> FastSample | None:
    fast = ring.fast if ring is not None else []
    return next((sample for sample in reversed(fast) if value(sample) is not None), None)


def _newer(sample: FastSample, moment: Moment) -> bool:
    return moment.monotonic is None or sample.at >= moment.monotonic


def _moment(ring: Ring, at: float) -> Moment:
    pair = ring.clocks[-1] if ring.clocks else None
    realtime = pair.realtime + (at - pair.monotonic) if pair is not None else None
    return Moment(realtime=realtime, monotonic=at, boot_id=ring.process.boot_id)


def _trend(ring: Ring | None, value: _Value) -> float | None:
    last = _last(ring, value)
    if ring is None or last is None:
        return None
    recent = [(one.at, seen) for one in ring.fast if one.at >= last.at - _TREND and (seen := value(one)) is not None]
    (began, first), (ended, final) = recent[0], recent[-1]
    return (final - first) / (ended - began) if ended > began else None

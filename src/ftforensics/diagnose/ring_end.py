"""When a process ended, on the clock of its recorder's ring."""

from __future__ import annotations

import os.path

import msgspec

from ftforensics.diagnose.clocks import Clocks, seconds_between
from ftforensics.model.death import Death
from ftforensics.model.ring import Ring

WORST_ACCURACY = 0.25  # seconds; a log with whole seconds cannot say how old a sample was
LATEST = 0.5  # seconds: a sample may be that much younger than the end that another program saw
LONGEST = 3600.0  # seconds without a sample: then the times are of different events, or the recorder had stopped


class EndTime(msgspec.Struct, frozen=True):
    """at: CLOCK_MONOTONIC; known: it is the end itself, not merely the last sample."""

    at: float
    known: bool


def ring_end(death: Death, ring: Ring, last: float) -> EndTime:
    """last: the time of the ring's last sample, which stands in for an end that nobody timed."""
    if death.alive:
        return EndTime(last, False)
    if ring is death.ring and ring.end.how is not None and ring.end.at is not None and ring.end.at >= last:
        return EndTime(ring.end.at, True)
    sampled = Clocks(ring.clocks, ring.process.boot_id).at(last)
    passed = seconds_between(sampled, death.when)
    if passed is None or passed[1] > WORST_ACCURACY or not -LATEST <= passed[0] <= LONGEST:
        return EndTime(last, False)
    return EndTime(last + max(passed[0], 0.0), True)


def ring_name(ring: Ring, path: str | None = None) -> str:
    """For cites: the file's name, else whose ring it is."""
    if path:
        return os.path.basename(path)
    return f"ring of rank {ring.process.rank}" if ring.process.rank is not None else f"ring of pid {ring.process.pid}"

"""Converts between the clocks of different sources, and says by how much a converted time may be wrong."""

from __future__ import annotations

from collections.abc import Sequence

from ftforensics.model.moment import Moment
from ftforensics.model.ring import ClockPair
from ftforensics.model.run import RunEvidence

LARGEST_OFFSET = 14 * 3600.0  # seconds from UTC, of the zones in use
# Two machines' wall clocks, when nobody has measured their difference: NTP holds them within some milliseconds, a
# machine without it is off by more, and nothing here says which of the two it was.
BETWEEN_MACHINES = 1.0  # seconds
SMALLEST_OFFSET = 900.0  # every zone in use is a multiple of it away from UTC


class Clocks:
    """Pairs of clocks read at one instant, of one boot. Without any pair nothing can be converted."""

    def __init__(self, pairs: Sequence[ClockPair] = (), boot_id: str | None = None) -> None:
        self._pairs = sorted(pairs, key=lambda pair: pair.monotonic)
        self.boot_id = boot_id

    def at(self, monotonic: float) -> Moment:
        """The moment of a CLOCK_MONOTONIC time, by the nearest pair. What the wall clock was set by meanwhile is the
        error, as far as two pairs show it."""
        if not self._pairs:
            return Moment(monotonic=monotonic, boot_id=self.boot_id)
        nearest = min(self._pairs, key=lambda pair: abs(pair.monotonic - monotonic))
        offsets = [pair.realtime - pair.monotonic for pair in self._pairs]
        return Moment(
            realtime=nearest.realtime + (monotonic - nearest.monotonic),
            monotonic=monotonic,
            accuracy=max(offsets) - min(offsets),
            boot_id=self.boot_id,
        )


def clocks_of_run(run: RunEvidence) -> Clocks:
    """By the pairs that the supervisor took at its start and at the command's end."""
    pairs = [taken.clocks for taken in (run.started, run.ended) if taken is not None]
    return Clocks(pairs, run.started.boot_id if run.started else None)


def seconds_after(moment: Moment, wall: float | None) -> tuple[float, float] | None:
    """(`wall` minus moment, +- seconds) for a wall clock in an unnamed zone; None without a time to compare."""
    if moment.realtime is None or wall is None:
        return None
    return wall - moment.realtime, max(moment.accuracy, LARGEST_OFFSET)


def seconds_between(earlier: Moment, later: Moment) -> tuple[float, float] | None:
    """(later minus earlier, +- seconds), by the monotonic clock where both have it and share the boot, else by the wall
    clock. None when they have no clock in common. Boots that are known to differ share no monotonic clock."""
    same_boot = earlier.boot_id is None or later.boot_id is None or earlier.boot_id == later.boot_id
    if same_boot and earlier.monotonic is not None and later.monotonic is not None:
        return later.monotonic - earlier.monotonic, 0.0
    if earlier.realtime is not None and later.realtime is not None:
        apart = later.realtime - earlier.realtime
        return apart, earlier.accuracy + later.accuracy + (0.0 if same_boot else BETWEEN_MACHINES)
    return None


def is_before(one: Moment, other: Moment) -> bool:
    """Is `one` surely the earlier? False too when no clock tells."""
    apart = seconds_between(one, other)
    return apart is not None and apart[0] > apart[1]

"""Which deaths are of one machine, whose parent is whose, and how many came at one instant: look-ups in all deaths."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from ftforensics.diagnose.clocks import is_before
from ftforensics.diagnose.matching import other_machine
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.moment import Moment

TOGETHER = 1.0  # seconds within which deaths count as one event


class Family:
    """All deaths of a case by their numbers: those of the process itself and those that the kernel may use for it."""

    def __init__(self, deaths: Sequence[Death]) -> None:
        self._by_pid: dict[int, list[Death]] = {}
        for death in deaths:
            for pid in dict.fromkeys([death.pid, *death.host_pids]):
                if pid is not None:
                    self._by_pid.setdefault(pid, []).append(death)

    def of_pid(self, pid: int | None, near: Death) -> list[Death]:
        """The deaths of that number that may be of `near`'s machine and boot, without itself."""
        if pid is None:
            return []
        return [other for other in self._by_pid.get(pid, ()) if other is not near and may_be_near(other, near)]

    def parent_that_died_before(self, death: Death) -> tuple[Moment, Cite | None] | None:
        for parent in self.of_pid(death.ppid, death):
            if is_before(parent.when, death.when):
                return parent.when, parent.ending[0] if parent.ending else None
        return None


def may_be_near(one: Death, other: Death) -> bool:
    """False where they are known to be of different machines or boots."""
    if one.boot_id is not None and other.boot_id is not None:
        return one.boot_id == other.boot_id
    return not other_machine(one.host, other.host)


class Together:
    """Counts the deaths within a second of a moment, by whichever clock the two share."""

    def __init__(self, deaths: Iterable[Death]) -> None:
        moments = [death.when for death in deaths]
        by_boot: dict[str | None, list[Moment]] = {}
        for moment in moments:
            if moment.monotonic is not None:
                by_boot.setdefault(moment.boot_id, []).append(moment)
        unknown = by_boot.get(None, [])
        every = [moment for some in by_boot.values() for moment in some]
        # Those that can be compared with one of a known boot by the monotonic clock, and with one of an unknown boot.
        self._comparable = {
            boot: _Clocked(every if boot is None else [*some, *unknown]) for boot, some in by_boot.items()
        }
        self._unknown = _Clocked(unknown)
        self._all = _Clocked(moments)

    def count(self, moment: Moment) -> int:
        found = self._all.on_the_wall(moment)
        if moment.monotonic is not None:
            same = self._comparable.get(moment.boot_id, self._unknown)
            found += same.on_the_clock(moment) - same.on_the_wall(moment)
        return found


class _Clocked:
    def __init__(self, moments: Sequence[Moment]) -> None:
        self._monotonic = sorted(one.monotonic for one in moments if one.monotonic is not None)
        dated = [(one.realtime, one.accuracy) for one in moments if one.realtime is not None]
        self._from = sorted(realtime - accuracy for realtime, accuracy in dated)
        self._to = sorted(realtime + accuracy for realtime, accuracy in dated)

    def on_the_clock(self, moment: Moment) -> int:
        assert moment.monotonic is not None
        low = bisect_left(self._monotonic, moment.monotonic - TOGETHER)
        return bisect_right(self._monotonic, moment.monotonic + TOGETHER) - low

    def on_the_wall(self, moment: Moment) -> int:
        if moment.realtime is None:
            return 0
        reach = TOGETHER + moment.accuracy
        begun = bisect_right(self._from, moment.realtime + reach)
        return begun - bisect_left(self._to, moment.realtime - reach)

"""The NVIDIA driver's own lines in the kernel's log, near a death.

An Xid is about a GPU, and names a process only when it knows one: whoever had made the channel. So an event is tied to
a death by its pid where it has one, and otherwise only by its time; a cause must weigh that. Lines of another machine
or boot, of another time, and those that a program wrote itself through /dev/kmsg are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from ftforensics.diagnose.clocks import LARGEST_OFFSET, seconds_after, seconds_between
from ftforensics.diagnose.matching import SLACK, containers_pid, locator, match_line, same_machine
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death, DriverNoteMatch, Match, Tie, XidMatch
from ftforensics.model.kernel import DriverNote, KernelLog, LogLine, Xid

NEAR = 300.0  # seconds before the end; a collective that waits for a lost GPU takes minutes to be given up
AFTER = 5.0  # the driver reports some (43, 45) while it tears the process's channels down
MOST = 20


class GpuEvents:
    """The driver's lines of all kernel logs, those of each machine once."""

    def __init__(self, logs: Sequence[KernelLog]) -> None:
        self._logs = [log for log in logs if any(isinstance(event, Xid | DriverNote) for event in log.events)]
        self._of: dict[tuple[str | None, str | None], _Events] = {}  # by boot and host
        self._events: dict[tuple[int, ...], _Events] = {}  # by the logs that may be of the machine

    def tell(self, death: Death) -> Death:
        """The death with the events near its end."""
        if not self._logs:
            return death
        key = (death.boot_id, death.host)
        if key not in self._of:
            places = tuple(place for place, log in enumerate(self._logs) if same_machine(log, death))
            if places not in self._events:
                self._events[places] = _Events([self._logs[place] for place in places])
            self._of[key] = self._events[places]
        near = self._of[key].near(death)
        xids = [
            XidMatch(one.event, one.cite, _match(one.event, one.log, death, before), before)
            for one, before in near
            if isinstance(one.event, Xid)
        ]
        notes = [DriverNoteMatch(one.event, one.cite, before) for one, before in near if not isinstance(one.event, Xid)]
        return msgspec.structs.replace(death, xids=xids, driver_notes=notes) if near else death


class _Event(msgspec.Struct, frozen=True):
    event: Xid | DriverNote
    log: KernelLog
    cite: Cite


_Near = list[tuple[_Event, float | None]]


class _Events:
    """The events of one machine's logs, each once. Ends that the clocks cannot tell apart have the same ones near."""

    def __init__(self, logs: Sequence[KernelLog]) -> None:
        kept: dict[tuple[object, ...], _Event] = {}
        for log in logs:
            for event in log.events:
                if isinstance(event, Xid | DriverNote) and not event.line.forgeable:
                    cite = Cite(log.source, locator(log, event.line), event.line.text[:300])
                    kept.setdefault(_what(event), _Event(event, log, cite))
        self._all = list(kept.values())
        moments = [one.event.line.moment for one in self._all]
        self._times = [moment.monotonic for moment in moments if moment.monotonic is not None]
        self._boot = moments[0].boot_id if len({moment.boot_id for moment in moments}) == 1 else None
        self._sorted = len(self._times) == len(self._all) and self._times == sorted(self._times)
        self._known: dict[tuple[object, ...], _Near] = {}

    def near(self, death: Death) -> _Near:
        """Nearest to the end first; of those without a comparable time the last of the log. At most MOST of a kind."""
        key = (death.when, death.earliest, death.wall)
        if key not in self._known:
            found = []
            for one in self._about(death):
                near, before = _before(one.event.line, death)
                if near:
                    found.append((one, before))
            xids = [pair for pair in found if isinstance(pair[0].event, Xid)]
            notes = [pair for pair in found if not isinstance(pair[0].event, Xid)]
            self._known[key] = [*_nearest(xids), *_nearest(notes)]
        return self._known[key]

    def _about(self, death: Death) -> Sequence[_Event]:
        end = death.when.monotonic
        if not self._sorted or end is None or self._boot is None or self._boot != death.boot_id:
            return self._all
        low = bisect_left(self._times, end - NEAR)
        return self._all[low : bisect_right(self._times, end + AFTER + SLACK)]


def _before(line: LogLine, death: Death) -> tuple[bool, float | None]:
    """(may it have to do with the end?, seconds before it where the clocks can be compared)."""
    apart = seconds_between(line.moment, death.when)
    if apart is not None:
        seconds, error = apart
        return -(AFTER + SLACK + error) <= seconds <= NEAR + error, seconds
    alive = seconds_between(line.moment, death.earliest)
    if alive is not None:  # the end was not seen: later than the last sign of life, or shortly before that
        return alive[0] <= NEAR + alive[1], None
    day = seconds_after(line.moment, death.wall)
    return day is None or abs(day[0]) <= LARGEST_OFFSET + NEAR, None


def _match(xid: Xid, log: KernelLog, death: Death, before: float | None) -> Match | None:
    if xid.pid is None:
        return None
    match = match_line(xid.line, xid.pid, xid.comm, log, death)
    if match is None and xid.pid in death.host_pids and before is not None:
        # Longer before the end than a kill would be; the process lived on without its GPU.
        place = locator(log, xid.line)
        why = [
            Cite(log.source, place, f"pid {xid.pid} is this process"),
            Cite(log.source, place, f"{max(before, 0.0):.0f} s before the end was seen"),
        ]
        match = Match(Tie.STRONG, why)
    if match is None or match.tie is Tie.EXACT:
        return match
    doubts = containers_pid(xid.pid, death, log.source, locator(log, xid.line))
    return Match(Tie.STRONG, match.why, [*match.against, *doubts]) if doubts else match


def _what(event: Xid | DriverNote) -> tuple[object, ...]:
    """`run` followed the log, and the log was read again afterwards."""
    when = _when(event.line)
    if isinstance(event, Xid):
        return (event.number, event.device, event.pid, event.text, event.switch, *when)
    return (event.kind, event.client, event.module, event.device, *when)


def _when(line: LogLine) -> tuple[float | None, float | None]:
    """The kernel's own stamp is exact in both copies; dates are rounded by whoever wrote them."""
    if line.moment.monotonic is not None:
        return round(line.moment.monotonic, 3), None
    return None, line.moment.realtime


def _nearest(found: _Near) -> _Near:
    last_first = list(reversed(found))
    return sorted(last_first, key=lambda pair: (pair[1] is None, abs(pair[1] or 0.0)))[:MOST]

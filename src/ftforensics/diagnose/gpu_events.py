"""The NVIDIA driver's own lines in the kernel's log, near a death.

An Xid is about a GPU, and names a process only when it knows one: whoever had made the channel. So an event is tied to
a death by its pid where it has one, and otherwise only by its time; a cause must weigh that. Lines of another machine
or boot, of another time, and those that a program wrote itself through /dev/kmsg are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from ftforensics.diagnose.clocks import LARGEST_OFFSET, seconds_after, seconds_between
from ftforensics.diagnose.matching import SLACK, containers_pid, locator, match_line, same_machine
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death, DriverNoteMatch, Match, Tie, XidMatch
from ftforensics.model.kernel import DriverNote, KernelLog, LogLine, Xid

NEAR = 300.0  # seconds before the end; a collective that waits for a lost GPU takes minutes to be given up
AFTER = 5.0  # the driver reports some (43, 45) while it tears the process's channels down
MOST = 20
_Event = Xid | DriverNote
_One = TypeVar("_One", XidMatch, DriverNoteMatch)


class GpuEvents:
    """The driver's lines of all kernel logs, each once and in time order."""

    def __init__(self, logs: Sequence[KernelLog]) -> None:
        self._logs = [found for log in logs if (found := _Log(log)).events]
        self._near: dict[tuple[str | None, str | None], list[_Log]] = {}

    def tell(self, death: Death) -> Death:
        """The death with the events near its end."""
        if not self._logs:
            return death
        key = (death.boot_id, death.host)
        if key not in self._near:
            self._near[key] = [one for one in self._logs if same_machine(one.log, death)]
        xids: list[XidMatch] = []
        notes: list[DriverNoteMatch] = []
        for one in self._near[key]:
            log = one.log
            for event, before in one.near(death):
                cite = Cite(log.source, locator(log, event.line), event.line.text[:300])
                if isinstance(event, DriverNote):
                    notes.append(DriverNoteMatch(event, cite, before))
                else:
                    xids.append(XidMatch(event, cite, _match(event, log, death, before), before))
        if not xids and not notes:
            return death
        return msgspec.structs.replace(
            death, xids=_nearest(_xids_once(xids)), driver_notes=_nearest(_notes_once(notes))
        )


class _Log:
    """One log's events. A death looks at those about its time, or at the last ones where no clock tells."""

    def __init__(self, log: KernelLog) -> None:
        self.log = log
        self.events = [
            event for event in log.events if isinstance(event, Xid | DriverNote) and not event.line.forgeable
        ]
        moments = [event.line.moment for event in self.events]
        self._times = [moment.monotonic for moment in moments if moment.monotonic is not None]
        one_boot = len({moment.boot_id for moment in moments}) == 1
        self._sorted = one_boot and len(self._times) == len(self.events) and self._times == sorted(self._times)

    def near(self, death: Death) -> Iterator[tuple[_Event, float | None]]:
        for event in self._about(death):
            near, before = _before(event.line, death)
            if near:
                yield event, before

    def _about(self, death: Death) -> Sequence[_Event]:
        end = death.when.monotonic
        boot = self.events[0].line.moment.boot_id
        if not self._sorted or end is None or None in (boot, death.boot_id) or boot != death.boot_id:
            return self.events
        low = bisect_left(self._times, end - NEAR)
        return self.events[low : bisect_right(self._times, end + AFTER + SLACK)]


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


def _xids_once(found: Sequence[XidMatch]) -> list[XidMatch]:
    """`run` followed the log, and the log was read again afterwards."""
    kept: dict[tuple[object, ...], XidMatch] = {}
    for one in found:
        xid = one.xid
        kept.setdefault((xid.number, xid.device, xid.pid, xid.text, xid.switch, *_when(xid.line)), one)
    return list(kept.values())


def _notes_once(found: Sequence[DriverNoteMatch]) -> list[DriverNoteMatch]:
    kept: dict[tuple[object, ...], DriverNoteMatch] = {}
    for one in found:
        note = one.note
        kept.setdefault((note.kind, note.client, note.module, note.device, *_when(note.line)), one)
    return list(kept.values())


def _when(line: LogLine) -> tuple[float | None, float | None]:
    """The kernel's own stamp is exact in both copies; dates are rounded by whoever wrote them."""
    if line.moment.monotonic is not None:
        return round(line.moment.monotonic, 3), None
    return None, line.moment.realtime


def _nearest(found: list[_One]) -> list[_One]:
    """Nearest to the end first; of those without a comparable time the last of the log."""
    last_first = list(reversed(found))
    return sorted(last_first, key=lambda one: (one.before is None, abs(one.before or 0.0)))[:MOST]

"""What happened when, on the record's own clocks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.diagnose.clocks import BETWEEN_MACHINES, Clocks
from ftforensics.model.basics import Cite
from ftforensics.model.case import Case
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import Death, Tie
from ftforensics.model.diagnosis import Event
from ftforensics.model.run import RunEvidence
from ftforensics.model.signals import signal_name

MOST_MARKS = 12  # of one ring, the last ones
MOST_TOLD = 64  # processes; the rest of thousands of ranks is counted


def timeline_of(deaths: Sequence[Death], case: Case) -> list[Event]:
    """Of one attempt, on the wall clock. deaths: the root first. Times of another machine than the root's carry the
    doubt between two machines' clocks."""
    events: list[Event] = []
    reactions: list[Event] = []
    for number, death in enumerate(deaths[:MOST_TOLD]):
        prefix = f"{_who(death)}: " if len(deaths) > 1 else ""
        error = BETWEEN_MACHINES if _is_elsewhere(death, deaths[0]) else None
        found = [*(timeline(death.crash.record) if death.crash else []), *events_of(death)]
        found = [msgspec.structs.replace(event, text=prefix + event.text, error=error) for event in found]
        if found and number == 0:
            found[-1] = msgspec.structs.replace(found[-1], kind="failure")
        elif found and (death.ended_by or _launcher_did(death)):
            reactions.append(found[-1])
        events += found
    if reactions:
        first = min(reactions, key=lambda event: event.at)
        events[events.index(first)] = msgspec.structs.replace(first, kind="reaction")
    rest = [time for death in deaths[MOST_TOLD:] if (time := death.when.realtime) is not None]
    if rest:
        events.append(Event(min(rest), f"the first of {len(deaths) - MOST_TOLD} more processes ended"))
        events.append(Event(max(rest), "the last of them ended"))
    events += [event for run in case.runs[:MOST_TOLD] for event in events_of_run(run)]
    return sorted(events, key=lambda event: event.at)


def _launcher_did(death: Death) -> bool:
    roles = [one.sender_role for one in death.sent] + [one.sender_role for one in death.signals]
    return "launcher" in roles


def _who(death: Death) -> str:
    pid = f"pid {death.pid}" if death.pid is not None else ""
    if death.rank is None:
        return pid or "a process"
    of = f"worker of rank {death.rank}" if death.worker else f"rank {death.rank}"
    return f"{of} ({pid})" if pid else of


def _is_elsewhere(one: Death, other: Death) -> bool:
    return None not in (one.boot_id, other.boot_id) and one.boot_id != other.boot_id


def timeline(record: CrashRecord) -> list[Event]:
    """Events in order. Monotonic times become wall-clock times by the pair taken at the crash: a clock that
    was set in between shifts the older ones."""
    time = record.time
    if time is None or time.realtime is None:
        return []
    events = []
    if time.monotonic is not None:
        shift = time.realtime - time.monotonic
        if time.installed is not None:
            events.append(
                Event(
                    time.installed + shift,
                    "ftforensics installed",
                    Cite("crash", "time.installed", f"{time.installed:.3f} monotonic"),
                )
            )
        if record.phase is not None and record.phase.since is not None and record.phase.names:
            text = f"entered phase {' > '.join(record.phase.names)}"
            events.append(
                Event(
                    record.phase.since + shift,
                    text,
                    Cite("crash", "phase.since", f"{record.phase.since:.3f} monotonic"),
                )
            )
        for index, seen in enumerate(record.signals_seen or []):
            sender = f" from pid {seen.sender.pid}" if seen.sender else ""
            events.append(
                Event(
                    seen.at + shift,
                    f"{seen.name} received{sender}",
                    Cite("crash", f"signals_seen[{index}]", f"{seen.at:.3f} monotonic"),
                )
            )
        for handler in record.handlers or []:
            for chained in handler.previous:
                if chained.taken_back and chained.at is not None:
                    text = f"{chained.library or 'a library'} had taken {handler.signal}; taken back"
                    events.append(
                        Event(
                            chained.at + shift,
                            text,
                            Cite("crash", f"handlers.{handler.signal}", f"handler at {chained.address}"),
                        )
                    )
    name = (record.signal.name if record.signal else None) or "the signal"
    events.append(
        Event(time.realtime, f"{name}: the process died", Cite("crash", "time.realtime", f"{time.realtime:.6f}"))
    )
    return sorted(events, key=lambda event: event.at)


def events_of(death: Death) -> list[Event]:
    """What the recorder, the kernel and the parent say about one process, on the wall clock."""
    events = []
    ring = death.ring
    if ring is not None:
        clocks = Clocks(ring.clocks, ring.process.boot_id)
        marks = [mark for mark in ring.marks if mark.kind == "phase" and mark.text][-MOST_MARKS:]
        for mark in marks:
            at = clocks.at(mark.at).realtime
            if at is not None:
                events.append(
                    Event(at, f"entered phase {mark.text}", Cite("ring", "marks", f"{mark.at:.3f} monotonic"))
                )
        if death.crash is None:
            for seen in death.signals:
                at = clocks.at(seen.signal.at).realtime
                if at is not None:
                    events.append(Event(at, f"{seen.cite.text} came", seen.cite))
        if ring.last is not None and death.crash is None:
            at = clocks.at(ring.last).realtime
            if at is not None:
                cite = Cite("ring", death.ring_path or "", f"{ring.last:.3f} monotonic")
                events.append(Event(at, "last sample of the recorder", cite))
        for match in death.oom[:1]:
            if match.match.tie is Tie.WEAK or match.kill.line.forgeable:
                break
            moment = match.kill.line.moment
            at = moment.realtime
            if at is None and moment.monotonic is not None:
                at = clocks.at(moment.monotonic).realtime
            if at is not None:
                events.append(Event(at, "the kernel's OOM killer took it", match.cite))
    raised = death.raised
    if raised is not None and raised.exceptions and raised.time is not None and raised.time.realtime is not None:
        last = raised.exceptions[0]
        cite = Cite("exception", death.raised_path or "", f"{last.type}: {last.message}"[:200])
        where = f" in thread {raised.thread}" if raised.thread else ""
        events.append(Event(raised.time.realtime, f"{last.type} was not caught{where}", cite))
    if death.crash is None and death.when.realtime is not None and death.ending:
        how = signal_name(death.signal) if death.signal is not None else f"status {death.code}"
        events.append(Event(death.when.realtime, f"its end was seen: {how}", death.ending[0]))
    return events


def events_of_run(run: RunEvidence) -> list[Event]:
    """The frame of a supervised run: its start and its end."""
    events = []
    if run.started is not None:
        clocks = run.started.clocks
        command = " ".join(run.started.argv)[:80]
        events.append(Event(clocks.realtime, f"run started: {command}", Cite("run", run.path or "", "started")))
    if run.ended is not None:
        how = f"signal {run.ended.signal}" if run.ended.signal is not None else f"status {run.ended.code}"
        events.append(
            Event(run.ended.clocks.realtime, f"run ended with {how}", Cite("run", run.path or "", "ended"), "end")
        )
    return events

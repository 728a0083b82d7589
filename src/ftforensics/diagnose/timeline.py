"""What happened when, on the record's own clocks."""

from __future__ import annotations

from ftforensics.model.basics import Cite
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Event


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

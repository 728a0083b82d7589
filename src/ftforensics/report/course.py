"""What happened when, counted from the first failure: a few lines, or all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.sizes import time_text
from ftforensics.model.diagnosis import Diagnosis, Event
from ftforensics.report.phrases import clock, excerpt, place_of, root

MOST_SHORT = 5
MOST = 300  # of ten thousand ranks, those around the first failure
_OF_KIND = {"failure": 1, "reaction": 2, "end": 1}  # how many of each a short one shows


class Entry(msgspec.Struct, frozen=True):
    """when: "+1.9 s", "+1.9 s ±0.5 s"; the date and time where there is nothing to count from. clock: date and time."""

    when: str
    text: str
    place: str
    clock: str


class Course(msgspec.Struct, frozen=True):
    """since: the date and time from which `when` counts, "" when they are dates themselves."""

    since: str
    entries: list[Entry]
    left_out: int = 0


def course(diagnosis: Diagnosis, *, full: bool, ascii: bool = False) -> Course | None:
    """None when there is nothing worth telling. ascii: no plus-minus sign."""
    events = diagnosis.timeline
    began = _began(diagnosis)
    shown = _nearest(events, began) if full else _chosen(diagnosis, began)
    if len(shown) < (1 if full else 2):
        return None
    return Course(
        clock(began) if began is not None else "",
        [_entry(event, began, ascii=ascii) for event in shown],
        len(events) - len(shown) if full else 0,
    )


def _began(diagnosis: Diagnosis) -> float | None:
    failure = next((event for event in diagnosis.timeline if event.kind == "failure"), None)
    if failure is not None:
        return failure.at
    process = root(diagnosis)
    return process.time if process is not None else None


def _chosen(diagnosis: Diagnosis, began: float | None) -> list[Event]:
    """The first failure, what the launcher did about it, the end."""
    events = diagnosis.timeline
    chosen: list[Event] = []
    for kind, most in _OF_KIND.items():
        of_kind = [event for event in events if event.kind == kind]
        chosen += of_kind[-most:] if kind == "end" else of_kind[:most]
    if not chosen and began is not None and len(diagnosis.processes) > 1:
        # Nobody said which matter: the one at the first failure, the next, and the last.
        first = min(range(len(events)), key=lambda index: abs(events[index].at - began), default=0)
        chosen = [*events[first : first + 2], *events[-1:]]
    unique = {id(event): event for event in chosen}
    return sorted(unique.values(), key=lambda event: event.at)[:MOST_SHORT]


def _nearest(events: Sequence[Event], began: float | None) -> list[Event]:
    if len(events) <= MOST:
        return list(events)
    if began is None:
        return list(events[-MOST:])
    order = sorted(range(len(events)), key=lambda index: (events[index].kind is None, abs(events[index].at - began)))
    return [events[index] for index in sorted(order[:MOST])]


def _entry(event: Event, began: float | None, *, ascii: bool) -> Entry:
    absolute = clock(event.at)
    when = absolute if began is None else _relative(event.at - began)
    if event.error:
        when += f" {'+-' if ascii else '±'}{time_text(event.error)}"
    return Entry(when, excerpt(event.text), place_of(event.cite) if event.cite else "", absolute)


def _relative(seconds: float) -> str:
    if abs(seconds) < 0.0005:
        return "0"
    return f"{'-' if seconds < 0 else '+'}{time_text(abs(seconds))}"

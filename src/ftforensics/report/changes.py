"""The section of a report on what has changed since the last good run."""

from __future__ import annotations

from ftforensics.model.ledger import Change, Changes
from ftforensics.report.escape import printable, shortened

MOST = 12
_VALUE = 60  # characters
_DAY = 86400


def heading(changes: Changes, now: float) -> str:
    """ "Changed since the last good run (14 days ago)". now: seconds since the epoch."""
    what = "the last good run" if changes.good else "the last run"
    if not changes.same_job:
        what += " of another program here"
    return f"{'Changed' if changes.items else 'Nothing seen to have changed'} since {what} ({ago(now - changes.since)})"


def lines(changes: Changes, most: int = MOST) -> list[str]:
    """One a change, the most telling first: "torch 2.4.1+cu121 -> 2.9.1+cu128"."""
    shown = [line(change) for change in changes.items[:most]]
    rest = len(changes.items) - most
    return [*shown, f"and {rest} more: ftforensics env diff {printable(changes.run)}"] if rest > 0 else shown


def line(change: Change) -> str:
    name = printable(change.name)
    if change.before is None:
        return f"{name} {_value(change.after)} is new"
    if change.after is None:
        return f"{name} {_value(change.before)} is gone"
    return f"{name} {_value(change.before)} -> {_value(change.after)}"


def _value(value: str | None) -> str:
    return shortened(printable(value), _VALUE) if value else '""' if value == "" else ""


def ago(seconds: float) -> str:
    for size, name in ((_DAY, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"

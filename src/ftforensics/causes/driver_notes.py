"""The kernel's lines about a driver whose two halves differ, and whether they fit an end."""

from __future__ import annotations

from ftforensics.model.death import Death, DriverNoteMatch

_NEAR = 120.0  # seconds: a process that was refused ends soon after
_CLOCK_SLACK = 2.0


def mismatches(death: Death) -> list[DriverNoteMatch]:
    """ "NVRM: API mismatch" lines, those that fit in time first."""
    noted = [one for one in death.driver_notes if one.note.kind == "api-mismatch"]
    return sorted(noted, key=lambda one: fits(one) is not True)


def fits(match: DriverNoteMatch) -> bool | None:
    """Was it said shortly before the end? None: the clocks cannot be compared."""
    return None if match.before is None else -_CLOCK_SLACK <= match.before <= _NEAR

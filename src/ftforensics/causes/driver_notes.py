"""The kernel's lines about a driver whose two halves differ, and whether they fit an end."""

from __future__ import annotations

from ftforensics.causes.ending import shortly_before
from ftforensics.model.death import Death, DriverNoteMatch


def mismatches(death: Death) -> list[DriverNoteMatch]:
    """ "NVRM: API mismatch" lines, those that fit in time first."""
    noted = [one for one in death.driver_notes if one.note.kind == "api-mismatch"]
    return sorted(noted, key=lambda one: fits(one) is not True)


def fits(match: DriverNoteMatch) -> bool | None:
    """Was it said shortly before the end? A process that was refused ends soon after. None: the clocks cannot be
    compared."""
    return shortly_before(match.before)

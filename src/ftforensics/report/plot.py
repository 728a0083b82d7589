"""A curve in characters, and the same as the lines of an SVG.

The height is honest: the picture begins at zero, and ends at the limit where there is one. Where samples are missing
the picture is empty; nothing is drawn through a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from ftforensics.model.diagnosis import CurvePoint, MemoryHistory

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN_LINE = "_.-=+*#@"  # one row: a taller mark for a higher value
PLAIN_COLUMN = "..::::##"  # several rows: what is seen is how far up a column reaches
LIMIT_MARK, PLAIN_LIMIT_MARK = "┄", "-"
LONGEST = 60.0  # seconds
# A limit that is many times the usage would press the curve flat; then the words alone name it.
LEAST_FULL = 0.2
GAP = 3.0  # times the usual distance of two samples


class Scale(msgspec.Struct, frozen=True):
    """span: seconds before the end at the left edge; top: bytes at the upper edge; limited: that is the limit."""

    span: float
    top: int
    limited: bool


def scale_of(history: MemoryHistory) -> Scale | None:
    """None when there is no curve."""
    if len(history.points) < 2:
        return None
    highest = max(point.used for point in history.points)
    span = min(max(point.before for point in history.points), LONGEST)
    if span <= 0:
        return None
    if history.limit and history.full is not None and highest >= LEAST_FULL * history.limit:
        return Scale(span, max(highest, history.limit), history.limit >= highest)
    return Scale(span, max(highest, 1), False)


def drawable(encoding: str | None) -> bool:
    """Can a stream of this encoding carry the block characters?"""
    try:
        (BLOCKS + LIMIT_MARK).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def rows(points: Sequence[CurvePoint], scale: Scale, width: int, height: int, *, ascii: bool = False) -> list[str]:
    """`height` lines of exactly `width` columns, the upper one first."""
    marks = (PLAIN_LINE if height == 1 else PLAIN_COLUMN) if ascii else BLOCKS
    levels = [None if used is None else _level(used, scale.top, height) for used in columns(points, scale.span, width)]
    lines = []
    for row in range(height - 1, -1, -1):
        filled = [0 if level is None else min(max(level - row * len(BLOCKS), 0), len(BLOCKS)) for level in levels]
        lines.append("".join(marks[part - 1] if part else " " for part in filled))
    return lines


def _level(used: int, top: int, height: int) -> int:
    """Eighths of a row. A sample is always seen, also one of nothing."""
    return max(round(used / top * height * len(BLOCKS)), 1)


def columns(points: Sequence[CurvePoint], span: float, width: int) -> list[int | None]:
    """The highest value in each column of time, None where nothing was sampled."""
    found: list[int | None] = [None] * width
    one = span / width  # seconds a column

    def place(before: float) -> int:
        return min(max(int((span - before) / one), 0), width - 1)

    def put(index: int, used: float) -> None:
        found[index] = max(found[index] or 0, int(used))

    for part in unbroken(points, least=one):
        for point in part:
            if point.before <= span:
                put(place(point.before), point.used)
        for earlier, later in pairwise(part):
            for index in range(place(earlier.before) + 1, place(later.before)):
                passed = earlier.before - (span - (index + 0.5) * one)
                share = passed / (earlier.before - later.before)
                put(index, earlier.used + share * (later.used - earlier.used))
    return found


def unbroken(points: Sequence[CurvePoint], least: float = 0.0) -> Iterator[list[CurvePoint]]:
    """The stretches without a missing sample. least: seconds, below which a distance is no gap."""
    distances = [earlier.before - later.before for earlier, later in pairwise(points)]
    longest = max(GAP * median(distances), least) if distances else least
    part: list[CurvePoint] = []
    for point in points:
        if part and part[-1].before - point.before > longest:
            yield part
            part = []
        part.append(point)
    if part:
        yield part


def lines(points: Sequence[CurvePoint], scale: Scale, width: float, height: float) -> list[str]:
    """Coordinates for SVG's `polyline`, one for each stretch: numbers, commas and spaces only."""
    return [
        " ".join(
            f"{width * (1 - point.before / scale.span):.1f},{height * (1 - point.used / scale.top):.1f}"
            for point in part
            if point.before <= scale.span
        )
        for part in unbroken(points)
    ]

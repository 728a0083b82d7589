"""Where a memory curve began its last rise, and how fast it rose. Pure arithmetic on (seconds, bytes).

The curve of a dying job is seldom a straight line: it stands, climbs, dips a little when something is freed, and often
stands again at the limit while the kernel looks for pages to drop. The rise meant here is the last climb, without the
standing before and after it, because "0.9 GiB/s" averaged over the standing would be a number about nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

import msgspec

Curve = Sequence[tuple[float, int]]

SMALLEST = 4 << 20  # bytes; a Python process moves by this much without anybody meaning it
SMALLEST_SHARE = 0.01  # of the highest value
DIP = 0.10  # of the whole swing: a fall that does not end a rise
KNEE = 0.25  # of the rise: how far a curve may hang from the straight line between its ends
MOST_POINTS = 100  # for the slope, whose cost is the square of it


class Rise(msgspec.Struct, frozen=True):
    """trend: "rising", "flat" or "falling" into the end. Of a rising curve: start and stop as indices into it, growth
    in bytes/s between them."""

    trend: str
    start: int = 0
    stop: int = 0
    growth: float = 0.0


def final_rise(curve: Curve) -> Rise | None:
    """curve: in time order. None when it has too few points to say anything."""
    if len(curve) < 3 or curve[-1][0] <= curve[0][0]:
        return None
    values = [value for _, value in curve]
    high, low, last = max(values), min(values), values[-1]
    least = max(SMALLEST, SMALLEST_SHARE * high)
    if high - low < least:
        return Rise("flat")
    start = _foot(values, DIP * (high - low))
    if last - values[start] < max(least, DIP * (high - low)):
        return Rise("falling" if high - last >= max(least, DIP * (high - low)) else "flat")
    start = _without_standing_before(curve, start)
    stop = _without_standing_after(curve, start)
    return Rise("rising", start, stop, slope(curve[start : stop + 1]))


def _foot(values: Sequence[int], dip: float) -> int:
    """Walking back from the end: the lowest point before the curve goes up again by more than a dip."""
    foot = len(values) - 1
    for index in range(len(values) - 1, -1, -1):
        if values[index] < values[foot]:
            foot = index
        elif values[index] > values[foot] + dip:
            break
    return foot


def _without_standing_before(curve: Curve, start: int) -> int:
    """The knee: where the curve hangs farthest below the line from its foot to its end."""
    while True:
        knee = max(range(start, len(curve)), key=lambda index: -_above(curve, start, len(curve) - 1, index))
        if knee == start or -_above(curve, start, len(curve) - 1, knee) <= KNEE:
            return start
        start = knee


def _without_standing_after(curve: Curve, start: int) -> int:
    """The shoulder: where it stands highest above that line, when only little rise comes after it."""
    stop = len(curve) - 1
    while True:
        shoulder = max(range(start, stop + 1), key=lambda index: _above(curve, start, stop, index))
        rise = curve[stop][1] - curve[start][1]
        left = curve[stop][1] - curve[shoulder][1]
        if shoulder == stop or _above(curve, start, stop, shoulder) <= KNEE or left > KNEE * rise:
            return stop
        stop = shoulder


def _above(curve: Curve, start: int, stop: int, index: int) -> float:
    """How far a point is above the line between two others, as a share of their difference in height."""
    (begin, foot), (end, top), (at, value) = curve[start], curve[stop], curve[index]
    if end <= begin or top <= foot:
        return 0.0
    return (value - foot) / (top - foot) - (at - begin) / (end - begin)


def slope(curve: Curve) -> float:
    """Bytes/s: the median of the slopes between all pairs of points (Theil-Sen), which single outliers do not move."""
    step = -(-len(curve) // MOST_POINTS)
    points = [*curve[:-1:step], curve[-1]]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in combinations(points, 2)
        if later[0] > earlier[0]
    ]
    return median(slopes) if slopes else 0.0

"""The curve in characters: exact width, honest height, gaps left empty."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.diagnosis import CurvePoint, MemoryHistory
from ftforensics.report.plot import BLOCKS, Scale, columns, drawable, lines, rows, scale_of

GIB = 1 << 30


def ramp(seconds: int = 60, top: int = 100, hertz: int = 4) -> list[CurvePoint]:
    """From zero up to `top` bytes, in a straight line."""
    count = seconds * hertz
    return [CurvePoint(before=seconds - n / hertz, used=round(top * n / count)) for n in range(count + 1)]


def test_a_ramp_in_one_row() -> None:
    assert rows(ramp(), Scale(60, 100, True), 16, 1) == ["▁▁▁▂▂▃▃▄▄▅▅▆▆▇▇█"]


def test_a_ramp_in_three_rows() -> None:
    assert rows(ramp(), Scale(60, 100, True), 12, 3) == [
        "        ▂▄▆█",
        "    ▂▄▆█████",
        "▂▄▆█████████",
    ]


def test_without_block_characters() -> None:
    assert rows(ramp(), Scale(60, 100, True), 16, 1, ascii=True) == ["___..--==++**##@"]
    plain = rows(ramp(), Scale(60, 100, True), 40, 4, ascii=True)
    assert all(line.isascii() and len(line) == 40 for line in plain)


@pytest.mark.parametrize("width", [1, 7, 59, 60, 61, 240, 1000])
@pytest.mark.parametrize("height", [1, 4])
def test_the_width_is_exact(width: int, height: int) -> None:
    drawn = rows(ramp(), Scale(60, 100, True), width, height)
    assert [len(line) for line in drawn] == [width] * height
    assert " " not in drawn[-1]


def test_a_peak_survives_in_a_narrow_plot() -> None:
    points = [CurvePoint(60 - n / 10, 100 if n == 303 else 5) for n in range(601)]
    drawn = rows(points, Scale(60, 100, True), 10, 1)[0]
    assert drawn.count("█") == 1
    assert drawn.index("█") == 5


def test_missing_samples_leave_a_gap() -> None:
    points = [point for point in ramp() if not 20 < point.before < 40]
    drawn = rows(points, Scale(60, 100, True), 60, 1)[0]
    assert drawn[21:39] == " " * 18
    assert drawn[:19].strip() == drawn[:19] and drawn[41:].strip() == drawn[41:]


def test_an_old_last_sample_leaves_the_end_empty() -> None:
    points = [CurvePoint(point.before + 10, point.used) for point in ramp(50)]
    drawn = rows(points, Scale(60, 100, True), 60, 1)[0]
    assert drawn[-9:] == " " * 9
    assert drawn[:49].count(" ") == 0


def test_sparse_samples_are_joined() -> None:
    """One a second, two columns a second."""
    found = columns([CurvePoint(60 - n, n) for n in range(61)], 60, 120)
    assert None not in found
    assert found == sorted(value for value in found if value is not None)


def test_a_sample_of_nothing_is_seen() -> None:
    assert rows([CurvePoint(1, 0), CurvePoint(0, 0)], Scale(1, 100, True), 3, 1) == ["▁▁▁"]


def test_the_scale_ends_at_the_limit_unless_that_is_far_away(make_history: Callable[..., MemoryHistory]) -> None:
    history = make_history()
    assert scale_of(history) == Scale(60.0, 64 * GIB, True)
    far = msgspec.structs.replace(history, limit=2048 * GIB, full=0.03)
    assert scale_of(far) == Scale(60.0, max(point.used for point in history.points), False)
    over = msgspec.structs.replace(history, limit=60 * GIB)
    assert scale_of(over) == Scale(60.0, max(point.used for point in history.points), False)
    # The limit of something else than the curve shows is no edge of the picture.
    other = msgspec.structs.replace(history, full=None)
    found = scale_of(other)
    assert found is not None and not found.limited


def test_no_curve_has_no_scale() -> None:
    assert scale_of(MemoryHistory("x")) is None
    assert scale_of(MemoryHistory("x", [CurvePoint(0, 5)])) is None
    assert scale_of(MemoryHistory("x", [CurvePoint(0, 5), CurvePoint(0, 6)])) is None


def test_svg_lines_are_numbers_and_break_at_gaps() -> None:
    points = [point for point in ramp() if not 20 < point.before < 40]
    drawn = lines(points, Scale(60, 100, True), 600, 120)
    assert len(drawn) == 2
    assert drawn[0].startswith("0.0,120.0 ") and drawn[1].endswith(" 600.0,0.0")
    assert set("".join(drawn)) <= set("0123456789., ")


@pytest.mark.parametrize(
    ("encoding", "can"),
    [
        ("utf-8", True),
        ("UTF-8", True),
        ("ascii", False),
        ("latin-1", False),
        ("cp437", False),
        (None, False),
        ("x", False),
    ],
)
def test_which_encodings_can_carry_it(encoding: str | None, can: bool) -> None:
    assert drawable(encoding) is can


def test_there_are_eight_heights() -> None:
    assert len(BLOCKS) == 8

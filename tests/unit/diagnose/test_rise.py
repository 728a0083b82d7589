"""The last climb of a curve: where it began, where it stopped, how fast it was."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ftforensics.diagnose.rise import Rise, final_rise, slope

GIB = 1 << 30


def curve(height: Callable[[float], float], seconds: float = 60.0, hertz: float = 10.0) -> list[tuple[float, int]]:
    """height: GiB at a time, seconds from the first sample."""
    return [(100 + n / hertz, int(height(n / hertz) * GIB)) for n in range(int(seconds * hertz) + 1)]


def rise_of(points: list[tuple[float, int]]) -> tuple[float, float, float]:
    """(began, stopped, GiB/s) of a curve that must rise; times from the first sample."""
    rise = final_rise(points)
    assert rise is not None and rise.trend == "rising", rise
    return points[rise.start][0] - points[0][0], points[rise.stop][0] - points[0][0], rise.growth / GIB


def test_standing_then_climbing_begins_at_the_knee() -> None:
    began, stopped, growth = rise_of(curve(lambda t: 15.8 if t < 13 else 15.8 + (t - 13) * 1.0))
    assert began == pytest.approx(13, abs=0.3)
    assert stopped == 60
    assert growth == pytest.approx(1.0, rel=0.01)


def test_standing_at_the_limit_is_not_part_of_the_climb() -> None:
    """Reclaim holds a group at its limit for a while; the growth was before that."""
    began, stopped, growth = rise_of(curve(lambda t: 16 + min(max(t - 10, 0) * 4, 48)))
    assert began == pytest.approx(10, abs=0.3)
    assert stopped == pytest.approx(22, abs=0.3)
    assert growth == pytest.approx(4.0, rel=0.02)


def test_slow_then_fast_gives_the_fast_end() -> None:
    began, _, growth = rise_of(curve(lambda t: 10 + t * 0.03 if t < 55 else 11.65 + (t - 55) * 10))
    assert began == pytest.approx(55, abs=0.3)
    assert growth == pytest.approx(10.0, rel=0.05)


def test_small_dips_and_noise_do_not_end_a_rise() -> None:
    noise = random.Random(7)
    points = curve(lambda t: 16 + t * 0.8 + noise.uniform(-1, 1) - (3 if 30 < t < 31 else 0))
    began, _, growth = rise_of(points)
    assert began < 4
    assert growth == pytest.approx(0.8, rel=0.05)


def test_steps_of_a_checkpoint_are_one_rise() -> None:
    """Shards are copied one after the other, with a pause for each write."""
    began, stopped, _ = rise_of(curve(lambda t: 20 + 8 * (max(t - 20, 0) // 10 + (1 if t > 20 else 0))))
    assert began == pytest.approx(20, abs=0.3)
    assert stopped == 60


def test_a_step_that_is_not_the_last_is_not_the_whole_rise() -> None:
    _, stopped, _ = rise_of(curve(lambda t: 20 + 8 * ((t > 20) + (t > 59.5))))
    assert stopped > 59


def test_a_deep_fall_before_is_not_part_of_it() -> None:
    began, _, growth = rise_of(curve(lambda t: 50 - t if t < 30 else 20 + (t - 30) * 1.2))
    assert began == pytest.approx(30, abs=0.3)
    assert growth == pytest.approx(1.2, rel=0.02)


@pytest.mark.parametrize(
    ("height", "trend"),
    [
        (lambda _: 12.0, "flat"),
        (lambda t: 64 + 0.2 * ((t * 10) % 2), "flat"),
        (lambda t: 40 - t * 0.5, "falling"),
        (lambda t: 10 + t if t < 40 else 15, "falling"),
    ],
)
def test_what_does_not_rise_says_so(height: Callable[[float], float], trend: str) -> None:
    assert final_rise(curve(height)) == Rise(trend)


def test_too_few_points_say_nothing() -> None:
    assert final_rise([]) is None
    assert final_rise([(1.0, 5), (2.0, 5 * GIB)]) is None
    assert final_rise([(1.0, 5), (1.0, GIB), (1.0, 2 * GIB)]) is None


def test_a_small_fast_rise_is_seen() -> None:
    """A group of 64 MiB, filled within a fifth of a second."""
    _, _, growth = rise_of(curve(lambda t: (16 + 240 * t) / 1024, seconds=0.2, hertz=20))
    assert growth * 1024 == pytest.approx(240, rel=0.01)


def test_outliers_do_not_move_the_slope() -> None:
    points = [(float(n), n * 1000) for n in range(50)]
    points[20] = (20.0, 10_000_000)
    assert slope(points) == pytest.approx(1000, rel=0.02)


def test_the_slope_of_a_long_curve_is_cheap() -> None:
    points = [(n / 100, n) for n in range(100_000)]
    assert slope(points) == pytest.approx(100)

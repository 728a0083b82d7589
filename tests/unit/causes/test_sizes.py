from __future__ import annotations

import pytest

from ftforensics.causes.sizes import enough_for, size_text, time_text

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (64 * GIB, "64 GiB"),
        (int(61.2 * GIB), "61.2 GiB"),
        (300 << 20, "300 MiB"),
        (1000 * GIB, "1000 GiB"),
        (4 << 10, "4 KiB"),
        (12, "12 bytes"),
        (-2 * GIB, "-2 GiB"),
    ],
)
def test_a_size_is_said_in_the_largest_unit_that_fits(size: int, said: str) -> None:
    assert size_text(size) == said


@pytest.mark.parametrize(("peak", "said"), [(64 * GIB, "80 GiB"), (65 * GIB, "82 GiB"), (700 << 20, "875 MiB")])
def test_what_is_enough_leaves_a_fifth_free(peak: int, said: str) -> None:
    assert enough_for(peak) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.064, "64 ms"), (0.9999, "1 s"), (1.94, "1.9 s"), (2, "2 s"), (47.2, "47 s"), (599, "599 s"), (720, "12 min")],
)
def test_a_time_is_said_as_a_person_says_it(seconds: float, said: str) -> None:
    assert time_text(seconds) == said


def test_a_time_is_never_negative() -> None:
    assert time_text(-0.001) == "0 ms"

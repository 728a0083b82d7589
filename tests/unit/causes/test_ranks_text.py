"""Many ranks in few words."""

from __future__ import annotations

import pytest

from ftforensics.causes.ranks import ranks_text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([5], "rank 5"),
        ([7, 4, 5, 6, 9], "ranks 4-7, 9"),
        ([1, 0], "ranks 0-1"),
        (list(range(0, 20, 2)), "ranks 0, 2, 4, 6, 8, 10 and 4 more"),
        (list(range(10_000)), "ranks 0-9999"),
    ],
)
def test_ranks(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text

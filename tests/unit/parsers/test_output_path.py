"""Whose output a file is, as its path says."""

from __future__ import annotations

import pytest

from ftforensics.parsers.output_path import OutputOf, output_of


@pytest.mark.parametrize(
    ("path", "whose"),
    [
        ("logs/none_x1y2/attempt_0/3/stderr.log", OutputOf(local_rank=3, attempt=0)),
        ("/tmp/torchelastic_a/77_b/attempt_12/0/error.json", OutputOf(local_rank=0, attempt=12)),
        ("attempt_2/7/stdout", OutputOf(local_rank=7, attempt=2)),
        ("run/rank4711/stderr.log", OutputOf(rank=4711)),
        ("run/rank_0007/out.log", OutputOf(rank=7)),
        ("gpu-07-rank3-4242-98.stderr.log", OutputOf(rank=3)),
        ("out/train.rank-12.log", OutputOf(rank=12)),
        ("out/RANK_5.out", OutputOf(rank=5)),
        ("node-1/local_rank_2/stderr.log", OutputOf(local_rank=2)),
        ("rank1/rank2.log", OutputOf(rank=2)),
        ("rank3/logs/all/stderr.log", OutputOf()),
        ("franken/ranking5.log", OutputOf()),
        ("job/lorank8/crank9.log", OutputOf()),
        ("rank" + "9" * 40 + "/x.log", OutputOf()),
        ("attempt_x/3/stderr.log", OutputOf()),
        ("", OutputOf()),
        ("/", OutputOf()),
        ("stderr.log", OutputOf()),
    ],
)
def test_whose(path: str, whose: OutputOf) -> None:
    assert output_of(path) == whose


def test_long_paths_take_no_time() -> None:
    assert output_of("rank_" * 200_000) == OutputOf()
    assert output_of("/".join(["rank"] * 200_000)) == OutputOf()

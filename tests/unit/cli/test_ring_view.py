"""`analyze x.ring`: the curve and the last second, on whatever the output can carry."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from synth.ring import fast, group, mark, ring_bytes, sig, slow

GIB = 1 << 30


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """Of another boot: a minute in which memory climbs to the limit, and no end."""
    samples = [
        fast(100 + n / 10, rss_anon=(n + 1) * GIB // 80, rss_file=0, rss_shmem=0, usage=(n + 1) * GIB // 20)
        for n in range(600)
    ]
    counted = [
        slow(100.0 + n, groups=[group("/job", usage=(n + 1) * GIB // 2, limit=32 * GIB)], mem_total=512 * GIB)
        for n in range(60)
    ]
    path = tmp_path / "x.ring"
    path.write_bytes(
        ring_bytes(
            pid=4242,
            rank=3,
            fast=samples,
            slow=counted,
            signals=[sig(159.5, 15, pid=17987)],
            marks=[mark(130.0, "phase", "save_checkpoint")],
        )
    )
    return path


def analyze(command: list[str], environment: Mapping[str, str], encoding: str, *arguments: object) -> bytes:
    made = subprocess.run(
        [*command, "analyze", *map(str, arguments)],
        env={**environment, "PYTHONIOENCODING": encoding, "COLUMNS": "80"},
        capture_output=True,
        check=False,
    )
    assert made.returncode == 3, made.stderr
    return made.stdout


def test_the_curve_and_the_last_second(command: list[str], environment: dict[str, str], ring: Path) -> None:
    text = analyze(command, environment, "utf-8", ring).decode()
    assert "UNDECIDED" in text.splitlines()[0]
    (curve,) = [line for line in text.splitlines() if "= limit 32 GiB" in line]
    assert "▁▁" in curve and "▇█ 0" in curve and len(curve) == 80
    for piece in (
        "memory of /job",
        "30 GiB of 32 GiB in use",
        "grew 0.5 GiB/s for 60 s",
        "phase save_checkpoint",
        "SIGTERM from pid 17987",
        "ended unseen",
    ):
        assert piece in text, piece
    assert "Where it died" not in text


def test_an_output_without_block_characters(
    command: list[str], environment: dict[str, str], ring: Path, tmp_path: Path
) -> None:
    text = analyze(command, environment, "ascii", ring).decode("ascii")
    (curve,) = [line for line in text.splitlines() if "= limit 32 GiB" in line]
    assert "___" in curve and "@ = limit" in curve
    assert "\\u25" not in text
    analyze(command, environment, "ascii", ring, "--output", tmp_path / "report.txt")
    assert "▇█ 0" in (tmp_path / "report.txt").read_text("utf-8")

"""A network mount whose server went away: `check` says so and does not hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conditions import ROOT, needs_fuse
from hung_mount import beside

pytestmark = needs_fuse


def checked(state: str, place: Path, *options: str) -> tuple[dict[str, Any], float]:
    """(the answer, seconds)."""
    place.mkdir()
    command = [sys.executable, "-m", "ftforensics", "check", "--json", *options]
    begun = time.monotonic()
    done = subprocess.run(
        beside(state, place, command),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=place.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer, time.monotonic() - begun


@pytest.mark.parametrize(("state", "says"), [("hung", "did not answer"), ("stale", "no longer works")])
def test_data_on_a_mount_whose_server_is_gone(tmp_path: Path, state: str, says: str) -> None:
    good = tmp_path / "good"
    good.mkdir()
    (good / "x").write_text("x")
    answer, seconds = checked(state, tmp_path / "data", "--data-path", str(tmp_path / "data"), "--data-path", str(good))
    bad, fine = (check for check in answer["checks"] if check["name"] == "data-path")
    bad, fine = (bad, fine) if bad["status"] == "fail" else (fine, bad)
    assert (bad["status"], fine["status"]) == ("fail", "ok")
    assert says in bad["said"] and str(tmp_path / "data") in bad["said"]
    assert seconds < 30


def test_checkpoints_on_a_mount_whose_server_is_gone(tmp_path: Path) -> None:
    answer, _ = checked("hung", tmp_path / "out", "--checkpoints", str(tmp_path / "out"))
    (check,) = (check for check in answer["checks"] if check["name"] == "checkpoint-path")
    assert check["status"] == "fail" and "does not answer" in check["said"]

"""The person's own command after a failure."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ftforensics.supervise.on_failure import run_on_failure


def test_it_is_told(tmp_path: Path) -> None:
    place = tmp_path / "told"
    assert run_on_failure(f'echo "$FTFORENSICS_VERDICT" > {place}', {"FTFORENSICS_VERDICT": "a b; $(rm x)"}) is None
    assert place.read_text() == "a b; $(rm x)\n"


@pytest.mark.parametrize(
    ("command", "wrong"),
    [("exit 3", "ended with status 3"), ("kill -9 $$", "died of signal 9"), ("no-such-tool", "127")],
)
def test_its_failure_is_half_a_sentence(command: str, wrong: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert wrong in str(run_on_failure(command, {}))


def test_it_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    begun = time.monotonic()
    told = run_on_failure(f"(sleep 2; touch {tmp_path}/late) & sleep 60", {}, patience=0.3)
    assert told == "took more than 0.3 s and was ended"
    assert time.monotonic() - begun < 2
    time.sleep(max(0.0, begun + 2.5 - time.monotonic()))
    assert not (tmp_path / "late").exists()


def test_what_it_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    run_on_failure("echo out; echo err >&2; read x; echo input $?", {})
    caught = capfd.readouterr()
    assert caught.out == "" and caught.err == "out\nerr\ninput 1\n"

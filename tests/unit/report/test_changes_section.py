"""The section "Changed since the last good run"."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Diagnosis
from ftforensics.model.ledger import Change, Changes
from ftforensics.report import html, terminal
from ftforensics.report.changes import ago, heading, line, lines

TORCH = Change("package", "torch", "2.4.1+cu121", "2.9.1+cu128")


def test_the_heading_says_when_and_of_what() -> None:
    day = 86400.0
    assert heading(Changes(0.0, "r", items=[TORCH]), 14 * day) == "Changed since the last good run (14 days ago)"
    assert heading(Changes(0.0, "r"), 7200.0) == "Nothing seen to have changed since the last good run (2 hours ago)"
    other = Changes(0.0, "r", same_job=False, items=[TORCH])
    assert heading(other, day) == "Changed since the last good run of another program here (1 day ago)"


@pytest.mark.parametrize(("seconds", "text"), [(-5.0, "just now"), (61, "1 minute ago"), (3 * 86400, "3 days ago")])
def test_how_long_ago(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def test_a_change_is_one_harmless_line() -> None:
    assert line(TORCH) == "torch 2.4.1+cu121 -> 2.9.1+cu128"
    hostile = line(Change("config", "a\x1b[2J.json: k", "x\ny", "\u202e" + "z" * 500))
    assert "\n" not in hostile and "\x1b" not in hostile and "\u202e" not in hostile
    assert len(hostile) < 200


def test_a_long_list_is_cut_with_the_command_that_shows_it() -> None:
    items = [Change("package", f"p{number}", "1", "2") for number in range(20)]
    shown = lines(Changes(0.0, "77-123", items=items))
    assert len(shown) == 13
    assert shown[-1] == "and 8 more: ftforensics env diff 77-123"


def test_the_report_says_what_changed_since_the_last_good_run(make_diagnosis: Callable[..., Diagnosis]) -> None:
    diagnosis = make_diagnosis()
    for page in (terminal.render(diagnosis, terminal.View()), html.render(diagnosis)):
        assert "Changed since the last good run (14 days ago)" in page
        assert "2.4.1+cu121" in page and "2.9.1+cu128" in page
    for page in (
        terminal.render(make_diagnosis(changes=None), terminal.View()),
        html.render(make_diagnosis(changes=None)),
    ):
        assert "since the last good run" not in page

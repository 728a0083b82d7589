"""Earlier attempts: a line each, and one for those in a row that ended for the same cause."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ftforensics.model.diagnosis import Attempt, Diagnosis
from ftforensics.report.attempts import Line, lines
from ftforensics.report.html import render as page
from ftforensics.report.terminal import View, render

Make = Callable[..., Diagnosis]


def attempt(number: int, **changed: object) -> Attempt:
    base = Attempt(
        f"attempt {number}",
        "failed",
        "exit-code",
        "likely",
        f"Rank 2 ended with status {number}.",
        root=f"rank 2 (pid {number})",
        path=f"runs/{number}",
    )
    return msgspec.structs.replace(base, **changed)


def told(make_killed: Make, *attempts: Attempt) -> list[str]:
    return [line.text for line in lines(make_killed(attempts=list(attempts)))]


def test_alike_in_a_row_are_one_line(make_attempts: Make) -> None:
    assert lines(make_attempts()) == [
        Line(
            "attempts 0-2: the same cause 3 times: cgroup-oom (proven), rank 3, as this time",
            [f"ftforensics/4411.{number}" for number in range(3)],
        )
    ]


def test_another_cause_is_another_line(make_killed: Make) -> None:
    other = attempt(2, cause="cgroup-oom", confidence="proven", root="rank 5 (pid 9)", began=10.0, ended=100.0)
    assert told(make_killed, attempt(0), attempt(1), other, attempt(3)) == [
        "attempts 0, 1: the same cause 2 times: exit-code (likely), rank 2",
        "attempt 2: cgroup-oom (proven), rank 5 (pid 9), after 90 s, as this time",
        "attempt 3: exit-code (likely), rank 2 (pid 3): Rank 2 ended with status 3.",
    ]


def test_the_same_cause_on_another_rank_or_less_sure_is_said(make_killed: Make) -> None:
    assert told(make_killed, attempt(0), attempt(1, root="rank 7 (pid 1)", confidence="proven")) == [
        "attempts 0, 1: the same cause 2 times: exit-code (likely, proven), rank 2, rank 7"
    ]


def test_what_nobody_explains_is_no_same_cause(make_killed: Make) -> None:
    unknown = [attempt(n, cause="killed-unknown", confidence="undecided", root=None) for n in range(2)]
    assert told(make_killed, *unknown) == ["attempts 0, 1: the same 2 times: killed-unknown (undecided)"]
    silent = attempt(0, cause=None, confidence="undecided", summary="Nothing says how it ended.")
    assert told(make_killed, silent) == ["attempt 0: Nothing says how it ended."]


def test_folders_and_lines_of_a_log_keep_their_names(make_killed: Make) -> None:
    named = [attempt(0, name="lines 1-40 of job.log", path=None), attempt(1, name="lines 41-80 of job.log", path=None)]
    assert told(make_killed, *named)[0].startswith("lines 1-40 of job.log to lines 41-80 of job.log: the same cause")


def test_the_latest_of_them_can_be_looked_at_and_with_verbose_each(make_attempts: Make) -> None:
    short, long = render(make_attempts(), View()), render(make_attempts(), View(verbose=True))
    assert "    ftforensics analyze ftforensics/4411.2\n" in short
    assert "4411.0" not in short
    for number in range(3):
        assert f"    ftforensics analyze ftforensics/4411.{number}\n" in long
        assert f"ftforensics analyze ftforensics/4411.{number}" in page(make_attempts())


def test_a_run_that_ended_well_still_tells_of_its_failures(make_succeeded: Make) -> None:
    text = render(make_succeeded(attempts=[attempt(0)]), View())
    assert text.startswith("The run ended well: status 0.\n\nEarlier attempts\n")
    assert "UNDECIDED" not in text


def test_ten_thousand_attempts_are_a_few_lines(make_killed: Make) -> None:
    many = [attempt(number, cause=f"cause-{number % 2}") for number in range(10_000)]
    assert len(render(make_killed(attempts=many), View()).splitlines()) < 80
    assert len(render(make_killed(attempts=many), View(verbose=True)).splitlines()) < 1000
    assert len(page(make_killed(attempts=many))) < 200_000

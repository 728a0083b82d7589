"""The timeline: counted from the first failure, short unless asked for, never endless."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Diagnosis, Event
from ftforensics.report.course import MOST, course
from ftforensics.report.terminal import View, render

Make = Callable[..., Diagnosis]
AT = 1764434531.25  # when the root of `killed` ended


def told(diagnosis: Diagnosis, *, full: bool, ascii: bool = False) -> list[tuple[str, str]]:
    found = course(diagnosis, full=full, ascii=ascii)
    return [(entry.when, entry.text) for entry in found.entries] if found else []


def test_the_short_one_has_the_failure_the_reaction_and_the_end(make_raised: Make) -> None:
    assert told(make_raised(), full=False) == [
        ("0", "rank 1 raised OutOfMemoryError"),
        ("+1.9 s ±500 ms", "torchrun sent SIGTERM to rank 3"),
        ("+2.5 s", "torchrun gave up"),
    ]
    assert [when for when, _ in told(make_raised(), full=True)] == ["-10 s", "0", "+250 ms", "+1.9 s ±500 ms", "+2.5 s"]
    assert told(make_raised(), full=False, ascii=True)[1][0] == "+1.9 s +-500 ms"


def test_times_count_from_the_failure_that_is_named_not_from_the_report_of_it(make_killed: Make) -> None:
    events = [Event(AT - 2, "it died", kind="failure"), Event(AT, "its end was seen")]
    assert told(make_killed(timeline=events), full=True) == [("0", "it died"), ("+2 s", "its end was seen")]


def test_without_kinds_what_lies_at_the_failure_what_follows_and_the_last(make_killed: Make) -> None:
    events = [Event(AT + at, f"{at}") for at in (-50, -3, 0, 1.5, 2, 9)]
    assert told(make_killed(timeline=events), full=False) == [("0", "0"), ("+1.5 s", "1.5"), ("+9 s", "9")]
    alone = make_killed(timeline=events, processes=make_killed().processes[:1])
    assert told(alone, full=False) == []


def test_one_event_is_no_short_timeline(make_killed: Make) -> None:
    diagnosis = make_killed(timeline=[Event(AT, "it died", kind="failure")])
    assert told(diagnosis, full=False) == []
    assert told(diagnosis, full=True) == [("0", "it died")]
    assert course(make_killed(timeline=[]), full=True) is None


def test_without_a_time_to_count_from_there_are_dates(make_killed: Make) -> None:
    diagnosis = make_killed(timeline=[Event(AT, "it died")], processes=[])
    assert told(diagnosis, full=True) == [("2025-11-29 16:42:11 UTC", "it died")]


def test_of_many_those_around_the_failure(make_huge: Make) -> None:
    found = course(make_huge(), full=True)
    assert found is not None
    assert len(found.entries) == MOST
    assert found.left_out == 9998 - MOST
    assert (found.entries[0].when, found.entries[0].text) == ("0", "the kernel's OOM killer took rank 4711")


@pytest.mark.parametrize("verbose", [False, True])
def test_places_only_when_asked(make_raised: Make, verbose: bool) -> None:
    text = render(make_raised(), View(verbose=verbose)).partition("\nTimeline")[2]
    assert ("exception rank1.exception.json" in text) is verbose
    assert "from the first failure, 2025-11-29 16:40:00 UTC" in text.splitlines()[0]

"""The page: complete, self-contained, and deaf to what a record would like it to do."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Cite, Confidence, Diagnosis, Finding, Verdict
from ftforensics.report.html import render
from ftforensics.wire.record import ReadRecord, read_record

Make = Callable[..., Diagnosis]


def record_of(root: Path) -> CrashRecord:
    reading = read_record((root / "docs" / "example.crash.json").read_bytes())
    assert isinstance(reading, ReadRecord)
    return reading.record


class Tags(HTMLParser):
    """Every tag with its attributes, as a browser's parser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_it_says_what_the_terminal_says(diagnosis: Diagnosis, root: Path) -> None:
    text = words(render(diagnosis, [record_of(root)]))
    for piece in (
        "Read through a null pointer",
        "LIKELY",
        "rank 0 (pid 4242)",
        "Fix: Unset LD_LIBRARY_PATH",
        "null-read",
        "train.py:88",
        "heap-corruption",
        "thread-stack-overflow",
        "--cap-add SYS_PTRACE",
        "rank 1 (pid 4243)",
        "Registers",
        "Thread 7",
    ):
        assert piece in text, piece


def test_hostile_text_makes_no_tag_and_no_control_character(
    make_any: Make, hostile: str, dangerous: list[str], root: Path
) -> None:
    page = render(make_any(hostile), [record_of(root)])
    assert not [character for character in dangerous if character in page]
    plain = Tags(render(make_any("plain"), [record_of(root)])).seen
    assert [tag for tag, _ in Tags(page).seen] == [tag for tag, _ in plain]


def test_quotes_do_not_leave_an_attribute(make_any: Make) -> None:
    page = render(make_any('" onmouseover="alert(1)" x=\''))
    assert not [attributes for _, attributes in Tags(page).seen if "onmouseover" in attributes]


def test_nothing_is_fetched_and_nothing_runs(make_any: Make, root: Path) -> None:
    tags = Tags(render(make_any(""), [record_of(root)])).seen
    assert not {tag for tag, _ in tags} & {"script", "img", "link", "iframe", "object", "form", "a"}
    assert not [attributes for _, attributes in tags if {"src", "href"} & set(attributes)]


def test_an_empty_diagnosis_is_a_page() -> None:
    assert "UNDECIDED" in render(Diagnosis(Verdict("unknown", None, None, "undecided", "")))


def test_a_kill_has_a_curve_and_no_place_where_it_died(make_killed: Make) -> None:
    page = render(make_killed())
    text = words(page)
    for piece in (
        "The last minute: memory of /slurm/job_4411",
        "limit 64 GiB",
        "grew 1.0 GiB/s for 47 s, from 15.8 GiB to 63.9 GiB; 8 of 8 ranks grew together",
        "last sample 64 ms before the end",
        "largest: rank 3 (pid 18033) 8.1 GiB",
        "SIGTERM from pid 17987 (torchrun)",
        "root rank 3 (pid 18033) killed by SIGKILL",
        "collateral ranks 0-2, 4-7 ended by SIGTERM from 17987 (torchrun), 1.9 s later",
        "collateral 4 workers of rank 0 killed by SIGKILL, 2 s to 5 s later",
        "attempt 1: cgroup-oom (proven), as this time",
    ):
        assert piece in text, piece
    assert "Where it died" not in text
    lines = [attributes["points"] for tag, attributes in Tags(page).seen if tag == "polyline"]
    assert len(lines) == 1 and lines[0] is not None
    points = [tuple(map(float, pair.split(","))) for pair in lines[0].split()]
    assert all(0 <= x <= 600 and 0 <= y <= 120 for x, y in points)
    assert points[0][1] == pytest.approx(120 * (1 - 15.8 / 64), abs=0.1)
    assert points[-1] == (pytest.approx(599.4, abs=0.1), pytest.approx(0.2, abs=0.1))


def test_undecided_shows_what_is_known_possible_and_excluded(make_unexplained: Make) -> None:
    text = words(render(make_unexplained()))
    order = ["UNDECIDED", "Cheapest next step:", "Known", "Possible cgroup-oom", "Excluded host-oom", "Not seen kmsg"]
    positions = [text.find(piece) for piece in order]
    assert positions == sorted(positions) and -1 not in positions
    assert "nothing found" not in text


def test_what_speaks_against_a_noted_cause_is_there(diagnosis: Diagnosis) -> None:
    against = Cite("crash", "mechanism", "it died by null-write, not by calling a missing function")
    finding = Finding("driver-minor-window", Confidence.POSSIBLE, "the driver is older", against=[against])
    page = render(msgspec.structs.replace(diagnosis, hypotheses=[*diagnosis.hypotheses, finding]), [])
    assert "against: it died by null-write, not by calling a missing function crash mechanism" in words(page)

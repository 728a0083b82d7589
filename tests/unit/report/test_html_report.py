"""The page: complete, self-contained, and deaf to what a record would like it to do."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Diagnosis, Verdict
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
    make_diagnosis: Make, hostile: str, dangerous: list[str], root: Path
) -> None:
    page = render(make_diagnosis(hostile), [record_of(root)])
    assert not [character for character in dangerous if character in page]
    plain = Tags(render(make_diagnosis("plain"), [record_of(root)])).seen
    assert [tag for tag, _ in Tags(page).seen] == [tag for tag, _ in plain]


def test_quotes_do_not_leave_an_attribute(make_diagnosis: Make) -> None:
    page = render(make_diagnosis('" onmouseover="alert(1)" x=\''))
    assert not [attributes for _, attributes in Tags(page).seen if "onmouseover" in attributes]


def test_nothing_is_fetched_and_nothing_runs(diagnosis: Diagnosis, root: Path) -> None:
    tags = Tags(render(diagnosis, [record_of(root)])).seen
    assert not {tag for tag, _ in tags} & {"script", "img", "link", "iframe", "object", "form", "a"}
    assert not [attributes for _, attributes in tags if {"src", "href"} & set(attributes)]


def test_an_empty_diagnosis_is_a_page() -> None:
    assert "UNDECIDED" in render(Diagnosis(Verdict("unknown", None, None, "undecided", "")))

"""`explain`: the causes' own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ftforensics.cli.explain import cause_files, docstring, page

Run = Callable[..., Any]


def test_the_list_has_every_cause_with_its_whole_title(run: Run) -> None:
    from ftforensics.causes.registry import causes

    shown = run("explain")
    assert shown.status == 0
    words = " ".join(shown.out.split())
    for cause in causes():
        title = docstring(cause_files()[cause.id]).partition("\n\n")[0]
        assert " ".join(f"{cause.id} {title}".split()) in words
    assert max(map(len, shown.out.splitlines())) <= 80
    assert {cause.id for cause in causes()} == set(cause_files())


def test_every_cause_is_explained(run: Run) -> None:
    for cause in cause_files():
        shown = run("explain", cause)
        assert shown.status == 0
        assert shown.out.startswith(cause)
        for heading in ("What it means", "How it is told apart", "What to do"):
            assert heading in shown.out
        assert "#" not in {line[:1] for line in shown.out.splitlines()}


def test_underscores_and_capitals_are_forgiven(run: Run) -> None:
    assert run("explain", "Native_Fault").out == run("explain", "native-fault").out


def test_nothing_of_the_text_is_lost() -> None:
    for path in cause_files().values():
        text = docstring(path)
        shown = " ".join(" ".join(page(text, 72)).split())
        assert shown == " ".join(text.replace("## ", "").split())


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Title.\n\n## Head\n\nText", ["", "Title.", "", "Head", "  Text"]),
        ("1. one\n2. two\n   more", ["", "1. one", "2. two more"]),
        ("- " + "word " * 10, ["", "- word word word word word word", "  word word word word"]),
        (
            "See:\n\n    $ command --long-option that is not wrapped",
            ["", "See:", "", "    $ command --long-option that is not wrapped"],
        ),
    ],
)
def test_layout(text: str, lines: list[str]) -> None:
    assert list(page(text, 32)) == lines

"""What every cause must bring: documentation with all headings, tests of three kinds, a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ftforensics.causes.pages import page, write_pages
from ftforensics.causes.registry import HEADINGS, Cause, causes, find_cause

CAUSES = causes()
HERE = Path(__file__).parent


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_documentation_has_every_heading_with_something_below(cause: Cause) -> None:
    title, _, body = cause.text.partition("\n")
    assert title.endswith("."), "the first line is the title, a sentence"
    sections = re.split(r"^## (.+)$", body, flags=re.MULTILINE)
    assert sections[1::2] == list(HEADINGS)
    assert all(len(text.strip()) > 20 for text in sections[2::2])


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_it_is_tested_to_fire_to_stay_quiet_and_to_weaken(cause: Cause) -> None:
    file = HERE / f"test_{cause.id.replace('-', '_')}.py"
    assert file.exists(), f"no {file.name}"
    text = file.read_text()
    for kind in (r"def test_fires", r"def test_near_miss", r"def test_missing_evidence_weakens"):
        assert re.search(kind, text), f"{file.name} has no {kind}"


def test_every_page_is_current(root: Path, tmp_path: Path) -> None:
    written = write_pages(tmp_path)
    published = root / "docs" / "causes"
    assert {path.name for path in written} == {path.name for path in published.glob("*")}
    for path in written:
        assert path.read_text() == (published / path.name).read_text(), f"{path.name}: run python -m ftforensics.causes"


def test_ids_are_kebab_case_and_known() -> None:
    ids = [cause.id for cause in CAUSES]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in ids)
    assert find_cause("native-fault") is not None and find_cause("no-such-cause") is None


def test_a_page_of_a_cause_that_is_gone_is_removed(tmp_path: Path) -> None:
    (tmp_path / "old-cause.md").write_text("x")
    write_pages(tmp_path)
    assert not (tmp_path / "old-cause.md").exists()


def test_a_page_shows_the_id(tmp_path: Path) -> None:
    assert page(CAUSES[0]).startswith(f"# {CAUSES[0].id}\n")

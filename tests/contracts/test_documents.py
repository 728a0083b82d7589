"""What the pages say is so: links lead somewhere, commands exist, shown output is real."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "news").glob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()] == []


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | {
        path.name for path in (ROOT / "docs").glob("*.json")
    }
    assert {page for page in pages - {"index.md"} if f"({page})" not in index} == set()


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/add-a-cause.md"])
def test_make_targets_that_pages_name_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    commands = re.findall(r"(?:^|`)make((?: [a-zA-Z_=.0-9-]+)+)", text, re.MULTILINE)
    named = {word for command in commands for word in command.split() if "=" not in word}
    assert named
    assert named - makefile_targets() == set()


def test_make_help_lists_every_target() -> None:
    made = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = {line.split()[1] for line in made.stdout.splitlines()}
    assert listed == makefile_targets()


def test_the_readme_shows_the_help_that_the_command_prints() -> None:
    shown = re.search(r"```text\n\$ ftforensics --help\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    made = subprocess.run(
        [sys.executable, "-m", "ftforensics", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown[1] == made.stdout, "make readme"


def test_every_version_of_the_package_is_the_same() -> None:
    """pyproject.toml is the one place; the command reads it from there."""
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    made = subprocess.run(
        [sys.executable, "-m", "ftforensics", "--version"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert project is not None
    assert project[1] in made.stdout

"""`facts`: the tables, with their sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ftforensics.cli.facts import fitted, page
from ftforensics.facts.catalogue import CATALOGUE
from ftforensics.facts.tables import FactsError, parse_table

Run = Callable[..., Any]


def test_the_list_names_every_table(run: Run) -> None:
    shown = run("facts")
    assert shown.status == 0
    for listed in CATALOGUE:
        (line,) = [line for line in shown.out.splitlines() if line.split()[:1] == [listed.name]]
        assert line.split()[1] == str(len(listed.table().rows))
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize("name", [listed.name for listed in CATALOGUE])
def test_every_table_fits_80_columns_and_shows_every_cell(run: Run, name: str) -> None:
    shown = run("facts", name)
    assert shown.status == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    words = set(shown.out.split())
    (listed,) = [listed for listed in CATALOGUE if listed.name == name]
    for row in listed.table().rows:
        assert {word for cell in row.cells for word in cell.split()} <= words


def test_the_row_of_a_driver_and_where_it_comes_from(run: Run) -> None:
    shown = run("facts", "drivers").out
    (line,) = [line for line in shown.splitlines() if line.startswith("12.1 ")]
    toolkit, *_, driver, mark = line.split()
    assert (toolkit, driver) == ("12.1", "530.30.02")
    assert [mark, "NV-RN"] in [line.split() for line in shown.splitlines()]


def test_underscores_capitals_and_file_names_are_forgiven(run: Run) -> None:
    assert run("facts", "Known_Bad").out == run("facts", "known-bad").out
    assert run("facts", "torch_wheels").out == run("facts", "torch").out


def test_json_of_one_table(run: Run) -> None:
    (table,) = json.loads(run("facts", "torch", "--json").out)
    assert table["table"] == "torch"
    (row,) = [row for row in table["rows"] if (row["torch"], row["variant"]) == ("2.5.1", "cu121")]
    assert row["pypi"] == "no"
    assert row["nccl"] is None
    assert row["source"]


def test_json_of_all_tables(run: Run) -> None:
    assert [table["table"] for table in json.loads(run("facts", "--json").out)] == [one.name for one in CATALOGUE]


@pytest.mark.parametrize(
    ("name", "says"),
    [("drivrs", "did you mean drivers?"), ("zzz", "the tables are drivers, "), ("\x1b[31m", "\\x1b[31m")],
)
def test_an_unknown_table_is_one_line_and_status_2(run: Run, name: str, says: str) -> None:
    shown = run("facts", name)
    assert shown.status == 2
    assert says in shown.complaint


def test_a_damaged_table_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(_: object) -> None:
        raise FactsError("xid.tsv line 5 (79): no source")

    monkeypatch.setattr("ftforensics.facts.catalogue.Listed.table", damaged)
    shown = run("facts", "xid")
    assert shown.status == 1
    assert "xid.tsv line 5" in shown.complaint and "--force-reinstall" in shown.complaint


def test_what_does_not_print_as_itself_is_escaped() -> None:
    table = parse_table("x", "# About \x1b[31m\nname\tsource\nred\x1b[31m\tevil\u202esource\n")
    shown = page(table, 80)
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "red\\x1b[31m" in shown and "evil\\u202esource" in shown


def test_a_wide_table_is_wrapped_a_too_wide_one_stands_one_under_the_other() -> None:
    assert fitted(["a", "b", ""], [["one two three", "x", "[1]"]], 15) == ["a        b", "one two  x  [1]", "three"]
    assert fitted(["id", "path", ""], [["one", "a/" * 20, "[1]"]], 30) == ["one [1]", f"  path  {'a/' * 20}"]


def test_help_loads_nothing_heavy(environment: Mapping[str, str]) -> None:
    import subprocess
    import sys

    code = "import sys\nfrom ftforensics.cli import main\nmain(['facts', '--help'])\nsys.exit('msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL).returncode == 0


def test_the_page_tells_which_file_holds_a_table(root: Path) -> None:
    page = " ".join((root / "docs" / "facts.md").read_text().replace(" is ", " ").split())
    for table in CATALOGUE:
        told = f"`{table.name}` `{table.file}.tsv`" in page
        assert told or table.file == table.name.replace("-", "_"), table.name

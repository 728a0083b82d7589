"""Reads the tables in `facts/data/` and refuses what cannot be right.

A table is a file of tab-separated lines: comments ("#") that say what it is, one line of column names, the rows. The
last column of every table is `source`, and no row is without one: a fact that nobody can look up is a rumour. An empty
cell means that no source says it. Words of a list are separated by spaces.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import NoReturn

import msgspec

VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,4}")


class FactsError(Exception):
    """A table contradicts itself or another one. Names the table, the row and the reason."""


class Row(msgspec.Struct, frozen=True):
    """line: its number in the file, counted from 1."""

    table: str
    line: int
    columns: tuple[str, ...]
    cells: tuple[str, ...]

    def refuse(self, reason: str) -> NoReturn:
        shown = " | ".join(cell for cell in self.cells[:-1] if cell)
        raise FactsError(f"{self.table}.tsv line {self.line} ({shown}): {reason}")

    def optional(self, column: str) -> str | None:
        return self.cells[self.columns.index(column)] or None

    def text(self, column: str) -> str:
        return self.optional(column) or self.refuse(f"no {column}")

    def version(self, column: str) -> str:
        """A dotted number: a driver, a CUDA version, a compute capability."""
        text = self.text(column)
        if not VERSION.fullmatch(text):
            self.refuse(f"{column} {text!r} is no version")
        return text

    def optional_version(self, column: str) -> str | None:
        return self.version(column) if self.optional(column) else None

    def versions(self, column: str) -> list[str]:
        words = self.words(column)
        for word in words:
            if not VERSION.fullmatch(word):
                self.refuse(f"{column} {word!r} is no version")
        return words

    def number(self, column: str) -> int:
        text = self.text(column)
        return int(text) if text.isascii() and text.isdigit() else self.refuse(f"{column} {text!r} is no number")

    def truth(self, column: str) -> bool:
        answer = self.optional_truth(column)
        return self.refuse(f"no {column}") if answer is None else answer

    def optional_truth(self, column: str) -> bool | None:
        text = self.optional(column)
        if text not in ("yes", "no", None):
            self.refuse(f"{column} is {text!r}, neither yes nor no")
        return None if text is None else text == "yes"

    def words(self, column: str) -> list[str]:
        return (self.optional(column) or "").split()


class Table(msgspec.Struct, frozen=True):
    name: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def keyed(self, *columns: str) -> tuple[Row, ...]:
        """The rows, no two of which may have the same words in `columns`."""
        seen: dict[tuple[str | None, ...], Row] = {}
        for row in self.rows:
            key = tuple(row.optional(column) for column in columns)
            if earlier := seen.get(key):
                same = "the same" if earlier.cells == row.cells else "something else"
                row.refuse(f"line {earlier.line} is about it too and says {same}")
            seen[key] = row
        return self.rows


def parse_table(name: str, text: str) -> Table:
    """Raises FactsError: no header, a row with too few or too many cells, a row without a source."""
    about: list[str] = []
    columns: tuple[str, ...] = ()
    rows: list[Row] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            about.append(line.lstrip("# "))
        elif line.strip() and not columns:
            columns = tuple(line.split("\t"))
            if columns[-1] != "source":
                raise FactsError(f"{name}.tsv line {number}: the last column must be called source")
        elif line.strip():
            cells = tuple(cell.strip() for cell in line.split("\t"))
            row = Row(name, number, columns, cells)
            if len(cells) != len(columns):
                row.refuse(f"{len(cells)} cells under {len(columns)} columns")
            if not cells[-1]:
                row.refuse("no source")
            rows.append(row)
    if not rows:
        raise FactsError(f"{name}.tsv: no rows")
    return Table(name, " ".join(about), columns, tuple(rows))


@cache
def read_table(name: str) -> Table:
    """`name`: of the file in facts/data, without ".tsv"."""
    file = resources.files("ftforensics.facts").joinpath("data", f"{name}.tsv")
    return parse_table(name, file.read_text(encoding="utf-8"))

"""`ftforensics facts [TABLE]`: the tables that the verdicts and the advice rest on, every row with its source."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import TYPE_CHECKING

from ftforensics.cli.errors import BadUsage, Failure

if TYPE_CHECKING:
    from ftforensics.facts.catalogue import Listed
    from ftforensics.facts.tables import Table

NAME = "facts"
HELP = "what is known of drivers, torch wheels, GPUs and bad releases"
DESCRIPTION = """\
Print a table of public facts that verdicts and advice rest on, with the source of
every row: which driver a CUDA version needs, which torch wheels there are, what an
Xid number means, which releases are known to crash.

Without TABLE, the tables are listed; with --json and no TABLE, all are printed."""

GAPS = ("  ", " ")  # between columns; the narrow one where the wide one leaves too little room


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", nargs="?", help="name of a table, from the list")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(options: argparse.Namespace) -> int:
    from ftforensics.cli.output import write_json, write_stdout
    from ftforensics.facts.catalogue import CATALOGUE
    from ftforensics.facts.tables import FactsError

    chosen = _named(options.table, CATALOGUE) if options.table is not None else None
    try:
        if options.json:
            text = as_json([chosen] if chosen else list(CATALOGUE))
        elif chosen:
            text = page(chosen.table(), shutil.get_terminal_size().columns, chosen.follows() if chosen.follows else "")
        else:
            text = listing(CATALOGUE)
    except FactsError as error:
        raise Failure(
            f"a table of this installation is damaged: {error}", "pip install --force-reinstall ftforensics"
        ) from None
    write = write_json if options.json else write_stdout
    write(text)
    return 0


def _named(name: str, listed: tuple[Listed, ...]) -> Listed:
    wanted = name.strip().lower().replace("_", "-")
    for one in listed:
        if wanted in (one.name, one.file.replace("_", "-")):
            return one

    import difflib

    close = difflib.get_close_matches(wanted, [one.name for one in listed], n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"the tables are {', '.join(one.name for one in listed)}"
    raise BadUsage(f"no table {name!r}", hint=hint)


def listing(listed: tuple[Listed, ...]) -> str:
    rows = [[one.name, str(len(one.table().rows)), one.about] for one in listed]
    lines = aligned(["table", "rows", "what it says"], rows)
    return "\n".join([*lines, "", "ftforensics facts TABLE prints one."]) + "\n"


def page(table: Table, width: int, follows: str = "") -> str:
    """What it is, its rows, what follows from them, and the sources that the last column numbers."""
    from ftforensics.report.escape import printable

    sources = list(dict.fromkeys(row.text("source") for row in table.rows))
    rows = [[*map(printable, row.cells[:-1]), f"[{sources.index(row.text('source')) + 1}]"] for row in table.rows]
    head = [*map(printable, table.columns[:-1]), ""]
    lines = [*textwrap.wrap(printable(table.about), width), "", *fitted(head, rows, width), ""]
    if follows:
        lines += [*textwrap.wrap(printable(follows), width), ""]
    lines.append("Sources")
    mark = len(f"[{len(sources)}]")
    for number, source in enumerate(sources, start=1):
        lines += textwrap.wrap(
            printable(source),
            max(width, 40),
            initial_indent=f"{f'[{number}]':<{mark}} ",
            subsequent_indent=" " * (mark + 1),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines) + "\n"


def fitted(head: list[str], rows: list[list[str]], width: int) -> list[str]:
    """Aligned lines, the widest columns wrapped so that they are at most `width` wide; one under the other where even
    that is too wide. Words stay whole: a version or a path that is broken in two cannot be searched for."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max([1, *(len(word) for cell in column for word in cell.split())]) for column in columns]
    for gap in GAPS:
        room = width - len(gap) * (len(widths) - 1)
        if sum(least) <= room:
            break
    else:
        return one_under_the_other(head, rows, width)
    while sum(widths) > room:
        widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
        widths[widest] -= 1
    lines: list[str] = []
    for row in [head, *rows]:
        cells = [_wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
        for at in range(max(map(len, cells))):
            lines.append(_line([cell[at] if at < len(cell) else "" for cell in cells], widths, gap))
    return lines


def one_under_the_other(head: list[str], rows: list[list[str]], width: int) -> list[str]:
    lines: list[str] = []
    size = max(map(len, head))
    for row in rows:
        lines += ["", f"{row[0]} {row[-1]}"]
        for name, cell in zip(head[1:-1], row[1:-1], strict=True):
            if cell:
                first, *more = _wrapped(cell, max(width - size - 4, 20))
                lines += [f"  {name:<{size}}  {first}", *(" " * (size + 4) + line for line in more)]
    return lines[1:]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def aligned(head: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [_line(row, widths, GAPS[0]) for row in [head, *rows]]


def _line(cells: list[str], widths: list[int], gap: str) -> str:
    return gap.join(f"{cell:<{size}}" for cell, size in zip(cells, widths, strict=True)).rstrip()


def as_json(listed: list[Listed]) -> str:
    """An empty cell is null."""
    import msgspec

    tables = [(one.name, one.table()) for one in listed]
    shown = [
        {
            "table": name,
            "about": table.about,
            "rows": [{column: row.optional(column) for column in table.columns} for row in table.rows],
        }
        for name, table in tables
    ]
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n"

"""`ftforensics explain [CAUSE]`: what a cause means, how it is told apart and what to do.

The text is the docstring of the cause's module, read from its source: nothing is imported, so it is quick and works
where the analyser's packages are missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import shutil
import textwrap
from collections.abc import Iterator

from ftforensics.cli.errors import BadUsage, Failure
from ftforensics.cli.output import write_stdout

NAME = "explain"
HELP = "what a cause means and what to do; without CAUSE, list them"
DESCRIPTION = """\
What a cause means, how it is told apart from its neighbours and what to do about it.

CAUSE is an id from a report, such as thread-stack-overflow. Without it, all
causes are listed."""

WIDEST = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cause", metavar="CAUSE", nargs="?", help="id of a cause, as the report gives it")


def run(options: argparse.Namespace) -> int:
    files = cause_files()
    if not files:
        raise Failure("the causes of this installation are missing", hint="pip install --force-reinstall ftforensics")
    width = min(shutil.get_terminal_size().columns, WIDEST)
    if options.cause is None:
        write_stdout(listing(files, width))
        return 0
    cause = options.cause.strip().lower().replace("_", "-")
    if cause not in files:
        raise BadUsage(f"no cause {options.cause!r}", hint=_close(cause, list(files)))
    write_stdout("\n".join([cause, "=" * len(cause), *page(docstring(files[cause]), width)]) + "\n")
    return 0


def cause_files() -> dict[str, str]:
    """Cause id -> source file, in order of family and id. causes/<family>/<cause_id>.py, dashes as underscores."""
    spec = importlib.util.find_spec("ftforensics.causes")
    found: dict[str, str] = {}
    for top in (spec.submodule_search_locations or []) if spec else []:
        for family in sorted(os.listdir(top)):
            folder = os.path.join(top, family)
            if family.startswith(("_", ".")) or not os.path.isdir(folder):
                continue
            for name in sorted(os.listdir(folder)):
                if name.endswith(".py") and not name.startswith("_"):
                    found[name.removesuffix(".py").replace("_", "-")] = os.path.join(folder, name)
    return found


def docstring(path: str) -> str:
    with open(path, encoding="utf-8") as source:
        return ast.get_docstring(ast.parse(source.read())) or "Nothing is written about this cause yet."


def listing(files: dict[str, str], width: int) -> str:
    longest = max(map(len, files))
    lines: list[str] = []
    family = ""
    for cause, path in files.items():
        if (new := os.path.basename(os.path.dirname(path))) != family:
            lines += ["", new] if lines else [new]
            family = new
        first = docstring(path).strip().partition("\n\n")[0].replace("\n", " ")
        begun, *more = textwrap.wrap(first, max(width - longest - 4, 30), break_on_hyphens=False) or [""]
        lines.append(f"  {cause:<{longest}}  {begun}".rstrip())
        lines += [f"  {'':<{longest}}  {line}" for line in more]
    return "\n".join([*lines, "", "ftforensics explain CAUSE tells more."]) + "\n"


def page(text: str, width: int) -> Iterator[str]:
    """Headings flush, what belongs to them indented; paragraphs and list items wrapped, indented blocks as they are."""
    indent = ""
    lines: list[str] = [""]
    for block in text.strip("\n").split("\n\n"):
        if lines:  # a heading stands right above what it heads
            yield ""
        lines = [line.rstrip() for line in block.strip("\n").split("\n")]
        if heading := HEADING.match(lines[0]):
            yield heading[1]
            indent = "  "
            lines = lines[1:]
        for line in _body(lines, width - len(indent)):
            yield indent + line if line else ""


HEADING = re.compile(r"#+ +(.*)")
ITEM = re.compile(r" *(?:[-*]|\d+\.) +")


def _body(lines: list[str], width: int) -> Iterator[str]:
    paragraph: list[str] = []
    for line in lines:
        item = ITEM.match(line)
        verbatim = line.startswith("    ") and not item and not paragraph
        if paragraph and item:
            yield from _wrapped(paragraph, width)
            paragraph = []
        if verbatim:
            yield line
        else:
            paragraph.append(line)
    if paragraph:
        yield from _wrapped(paragraph, width)


def _wrapped(paragraph: list[str], width: int) -> list[str]:
    item = ITEM.match(paragraph[0])
    first = item[0] if item else ""
    text = " ".join([paragraph[0][len(first) :], *paragraph[1:]])
    return textwrap.wrap(
        " ".join(text.split()),
        max(width, 30),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _close(cause: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(cause, known, n=3, cutoff=0.5)
    close += [other for other in known if cause in other and other not in close][:3]
    return f"close to it: {', '.join(close)}" if close else "ftforensics explain lists them all"

"""`ftforensics explain [CAUSE]`: what a cause means, how it is told apart and what to do.

The text is the docstring of the cause's module, read from its source: nothing is imported, so it is quick and works
where the analyser's packages are missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import shutil
import textwrap
from collections.abc import Iterator

from ftforensics.cli.errors import BadUsage, Failure
from ftforensics.cli.output import write_stdout
from ftforensics.report.escape import shortened

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
        lines.append(f"  {cause:<{longest}}  {_clipped(first, max(width - longest - 4, 30))}")
    return "\n".join([*lines, "", "ftforensics explain CAUSE tells more."]) + "\n"


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else shortened(text[: width - 1].rsplit(" ", 1)[0] + "…", width)


def page(text: str, width: int) -> Iterator[str]:
    """Headings apart, paragraphs and list items wrapped to `width`, indented blocks as they are."""
    blocks = text.strip("\n").split("\n\n")
    for block in blocks:
        lines = [line.rstrip() for line in block.strip("\n").split("\n")]
        if heading := _heading(lines):
            yield ""
            yield heading
            lines = lines[2:] if _is_rule(lines[1:2]) else lines[1:]
            if not lines:
                continue
        else:
            yield ""
        yield from _body(lines, width)


def _heading(lines: list[str]) -> str | None:
    if lines[0].startswith("#"):
        return lines[0].lstrip("# ")
    return lines[0] if _is_rule(lines[1:2]) else None


def _is_rule(lines: list[str]) -> bool:
    return bool(lines) and len(lines[0]) >= 3 and set(lines[0]) in ({"-"}, {"="})


def _body(lines: list[str], width: int) -> Iterator[str]:
    paragraph: list[str] = []
    for line in lines:
        item = line.lstrip().startswith(("- ", "* "))
        verbatim = line.startswith("    ") and not paragraph
        if paragraph and (item or verbatim):
            yield from _wrapped(paragraph, width)
            paragraph = []
        if verbatim and not item:
            yield line
        else:
            paragraph.append(line)
    if paragraph:
        yield from _wrapped(paragraph, width)


def _wrapped(paragraph: list[str], width: int) -> list[str]:
    indent = " " * (len(paragraph[0]) - len(paragraph[0].lstrip()))
    item = paragraph[0].lstrip().startswith(("- ", "* "))
    return textwrap.wrap(
        " ".join(line.strip() for line in paragraph),
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  " * item,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _close(cause: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(cause, known, n=3, cutoff=0.5)
    close += [other for other in known if cause in other and other not in close][:3]
    return f"close to it: {', '.join(close)}" if close else "ftforensics explain lists them all"

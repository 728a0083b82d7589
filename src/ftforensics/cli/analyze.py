"""`ftforensics analyze PATH...`: what killed the process, from its crash record or run folder."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

NAME = "analyze"
HELP = "say what ended a process, from its crash record or run folder"
DESCRIPTION = """\
Say what ended a process, how sure that is and what to change.

PATH is a crash record (*.crash.json) or a run folder with some in it; either is
recognised by its content. Everything happens on this machine. A record from
another machine is read too; then no fact of this machine is used."""

DECIDED, UNDECIDED = 0, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="crash record or run folder")
    parser.add_argument("--json", action="store_true", help="print the report as JSON (schema ftforensics.report/1)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show registers, all threads, handlers, stages")
    parser.add_argument("--pid", type=int, metavar="N", help="only the process with this pid")
    parser.add_argument("--rank", type=int, metavar="N", help="only the process of this rank")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour the verdict")
    parser.add_argument("--output", metavar="FILE", help="write the report there instead of to standard output")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page there as well")


def run(options: argparse.Namespace) -> int:
    from ftforensics.cli.inputs import gather
    from ftforensics.cli.output import write_file, write_stdout
    from ftforensics.cli.progress import Progress

    with Progress() as progress:
        case = gather(options.paths, pid=options.pid, rank=options.rank, progress=progress)
        targets = [path for path in (options.output, options.html) if path]
        _refuse_overwriting(targets, [record.path for record in case.records if record.path])
        progress.say("looking at stacks and libraries")
        from ftforensics.cli.analysis import diagnose_case
        from ftforensics.host.host import Host
        from ftforensics.sources.loaded import with_loaded

        case = with_loaded(case, Host())
        diagnosis = diagnose_case(case)

    paths = {record.path: record.record for record in case.records}
    in_order = [paths.pop(process.record) for process in diagnosis.processes if process.record in paths]
    records = [*in_order, *paths.values()]
    if options.json:
        from ftforensics.report import json

        text = json.render(diagnosis)
    else:
        from ftforensics.report import terminal

        view = terminal.View(
            width=_width(),
            colour=_colour(options.color, to_file=options.output is not None),
            verbose=options.verbose,
            path=options.paths[0] if len(options.paths) == 1 else None,
        )
        text = terminal.render(diagnosis, view, records)
    if options.html:
        from ftforensics.report import html

        write_file(options.html, html.render(diagnosis, records))
    if options.output:
        write_file(options.output, text)
    else:
        write_stdout(text)
    return UNDECIDED if diagnosis.verdict.confidence == "undecided" else DECIDED


def _refuse_overwriting(targets: list[str], records: list[str]) -> None:
    """A record is the only one of its kind: a slip of the pen must not replace it by a report about it."""
    from ftforensics.cli.errors import BadUsage

    for target in targets:
        if any(_same(target, record) for record in records):
            raise BadUsage(f"{target} is the crash record itself", hint="name another file for the report")
    if len(targets) == 2 and (os.path.realpath(targets[0]) == os.path.realpath(targets[1]) or _same(*targets)):
        raise BadUsage(f"--output and --html both name {targets[0]}", hint="name two files")


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _width() -> int:
    # COLUMNS, else the terminal's own width, else 80.
    return shutil.get_terminal_size().columns


def _colour(wanted: str, *, to_file: bool) -> bool:
    """--color decides. auto: a terminal that is not dumb, and no NO_COLOR (no-color.org: set and not empty)."""
    if wanted != "auto":
        return wanted == "always"
    if to_file or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return sys.stdout is not None and sys.stdout.isatty()
    except ValueError:  # closed
        return False

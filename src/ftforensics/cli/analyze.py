"""`ftforensics analyze PATH...`: what killed the process, from records, rings, run folders and logs."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftforensics.model.case import Case

NAME = "analyze"
HELP = "say what ended a process, from its records, its rings and logs"
DESCRIPTION = """\
Say what ended a process, how sure that is and what to change.

PATH is a crash record (*.crash.json), a recorder ring (*.ring), a run folder, the
job's output, a kernel log (dmesg, journalctl -k, /var/log), or what sacct,
kubectl get pod -o json or docker inspect printed; each is recognised by its
content, in any mix. Everything happens on this machine. Files from another
machine are read too; then no fact of this machine is used."""

DECIDED, UNDECIDED = 0, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="record, ring, run folder or log")
    parser.add_argument("--json", action="store_true", help="print the report as JSON (schema ftforensics.report/1)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show registers, all threads, handlers, stages")
    parser.add_argument("--pid", type=int, metavar="N", help="only the process with this pid")
    parser.add_argument("--rank", type=int, metavar="N", help="only the process of this rank")
    parser.add_argument(
        "--exit-code", type=int, metavar="N", help="how it ended, when no file says: -9 or 137 for SIGKILL"
    )
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour the verdict")
    parser.add_argument("--output", metavar="FILE", help="write the report there instead of to standard output")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page there as well")


def run(options: argparse.Namespace) -> int:
    from ftforensics.cli.collector import without_collector
    from ftforensics.cli.inputs import gather
    from ftforensics.cli.output import in_colour, write_file, write_json, write_stdout
    from ftforensics.cli.progress import Progress

    with without_collector(), Progress() as progress:
        case = gather(options.paths, pid=options.pid, rank=options.rank, progress=progress, exit_code=options.exit_code)
        targets = [path for path in (options.output, options.html) if path]
        _refuse_overwriting(targets, [*filter(os.path.isfile, options.paths), *_inputs(case)])
        progress.say("looking at stacks and libraries")
        from ftforensics.cli.analysis import completed, diagnose_case, records_in_order
        from ftforensics.host.host import Host

        case = completed(case, Host())
        diagnosis = diagnose_case(case)

    records = records_in_order(case, diagnosis)
    if options.json:
        from ftforensics.report import json

        text = json.render(diagnosis)
    else:
        from ftforensics.report import plot, terminal

        view = terminal.View(
            width=_width(),
            height=_height(to_file=options.output is not None),
            # A file is written as UTF-8, whatever the terminal speaks.
            ascii=not options.output and not plot.drawable(getattr(sys.stdout, "encoding", None)),
            colour=in_colour(options.color, to_file=options.output is not None),
            verbose=options.verbose,
            path=options.paths[0] if len(options.paths) == 1 else None,
        )
        text = terminal.render(diagnosis, view, records)
    if options.html:
        from ftforensics.report import html

        write_file(options.html, html.render(diagnosis, records))
    if options.output:
        write_file(options.output, text)
    elif options.json:
        write_json(text)
    else:
        write_stdout(text)
    verdict = diagnosis.verdict
    return DECIDED if verdict.confidence != "undecided" or verdict.outcome == "succeeded" else UNDECIDED


def _inputs(case: Case) -> list[str]:
    paths = [one.path for one in case.records] + [one.path for one in case.rings] + [one.path for one in case.runs]
    paths += [log.path for log in case.kernel_logs] + [log.path for log in case.launcher_logs]
    paths += [one.path for one in case.exceptions]
    return [path for path in paths if path]


def _refuse_overwriting(targets: list[str], records: list[str]) -> None:
    """A record is the only one of its kind: a slip of the pen must not replace it by a report about it."""
    from ftforensics.cli.errors import BadUsage

    for target in targets:
        if any(_same(target, record) for record in records):
            raise BadUsage(f"{target} is the evidence itself", hint="name another file for the report")
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


def _height(*, to_file: bool) -> int | None:
    """Lines of the window. None when there is none: a file and a pipe have no lower edge, and get the short form."""
    try:
        if to_file or sys.stdout is None or not sys.stdout.isatty():
            return None
    except ValueError:  # closed
        return None
    return shutil.get_terminal_size().lines

"""Runs the whole crash matrix and prints it as a table, side by side with faulthandler.

    PYTHONPATH=src:tests python tests/crash/matrix.py [--python 3.11 ...] [--only TEXT] [--no-peer] [--markdown FILE]

Columns for each Python: `ok` = one complete record, right mechanism, crashing function among the native frames, Python
line named where the thread has one, wait status as with no handler; `part` = a cell whose record cannot be written and
is stated (docs/matrix.md), status and time still checked; `FAIL` = anything else, told below the table.
Columns of faulthandler, of the same cell on the newest Python: what its text on stderr holds (record, the crashing
thread, native frames) and whether the kernel's own line about the fault survived; the last column is ours for that.
Exit status 1 when a cell failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from analysis import mechanism_of
from cells import PLAIN, SPECIAL, Cell
from conditions import IS_ROOT, PYTHONS, Interpreter
from harness import Baselines, Death, Workplace, die, failures
from kernel_log import KernelLog, Seen


@dataclass
class Peer:
    """What faulthandler left of a cell."""

    record: bool
    crashing_thread: bool
    native: bool
    same_status: bool


@dataclass
class Row:
    cell: Cell
    results: dict[str, str] = field(default_factory=dict)  # by Python version
    milliseconds: list[float] = field(default_factory=list)  # of the whole process, ours
    peer: Peer | None = None
    kernel: dict[str, Seen] = field(default_factory=dict)  # by watch
    wrong: list[str] = field(default_factory=list)


class Run:
    def __init__(self, place: Workplace, pythons: list[Interpreter], peer: bool) -> None:
        self.place = place
        self.pythons = pythons
        self.peer = peer
        self.baselines = Baselines(place)
        self.log = KernelLog()

    def compare(self, row: Row) -> None:
        """On the newest Python: ours and faulthandler, and, where the kernel writes a line, whether it stays. In a pass
        of its own, because the kernel leaves lines out when more than 10 come in 5 s, whoever crashes."""
        cell, python = row.cell, self.pythons[-1]
        shutil.rmtree(self.watched(row, "none", python).folder, ignore_errors=True)
        self.judge(row, python, self.watched(row, "ours", python))
        death = self.watched(row, "faulthandler", python)
        _, current, rest = death.stderr.partition("Current thread 0x")
        first_stack = rest.split("\n\n")[0]
        row.peer = Peer(
            record="Fatal Python error" in death.stderr,
            crashing_thread=bool(current) and (cell.python is None or cell.python in first_stack),
            native="C stack trace" in death.stderr,
            same_status=death.status == self.baselines.of(cell, python.path).status,
        )
        shutil.rmtree(death.folder, ignore_errors=True)

    def watched(self, row: Row, watch: str, python: Interpreter) -> Death:
        for attempt in range(3):
            if row.cell.expected.kernel_line:
                self.log.pace()
            death = die(row.cell, watch, self.place, python.path)
            if not row.cell.expected.kernel_line:
                break
            row.kernel[watch] = self.kernel_line(death)
            # A line may be missing because somebody else's crashes used the allowance up: asked again where one is due.
            due = watch == "none" or (watch == "ours" and row.kernel["none"] is Seen.YES)
            if row.kernel[watch] is Seen.YES or not due or attempt == 2:
                break
            shutil.rmtree(death.folder, ignore_errors=True)
        if watch == "none":
            self.baselines.remember(row.cell, python.path, death)
        return death

    def rest(self, row: Row) -> None:
        """Ours on every Python that has not had its turn."""
        for python in self.pythons:
            if str(python) not in row.results:
                self.judge(row, python, die(row.cell, "ours", self.place, python.path))

    def judge(self, row: Row, python: Interpreter, death: Death) -> None:
        wrong = failures(death, self.baselines.of(row.cell, python.path), self.place.build, mechanism_of)
        row.results[str(python)] = "FAIL" if wrong else "part" if row.cell.partial else "ok"
        row.wrong += [f"{row.cell} on {python}: {text}" for text in wrong]
        row.milliseconds.append(death.wall * 1000)
        shutil.rmtree(death.folder, ignore_errors=True)

    def kernel_line(self, death: Death) -> Seen:
        """The kernel names the thread. Others on this machine may crash meanwhile: no wider range than needed."""
        first = death.dying_pid
        if not isinstance(first, int):
            return Seen.UNKNOWN
        told = death.facts.get("tid")
        if isinstance(told, int) and "dying_pid" not in death.facts:
            return self.log.saw(told, told)
        return self.log.saw(first, first if death.cell.context == "main" else first + 20)


def table(rows: Iterable[Row], pythons: list[Interpreter]) -> list[str]:
    heads = [
        "death",
        *map(str, pythons),
        "mechanism",
        "ms",
        "fh record",
        "fh thread",
        "fh native",
        "fh kernel",
        "kernel",
    ]
    lines = [heads]
    for row in rows:
        peer = row.peer
        marks = ["", "", ""] if peer is None else [yes(peer.record), yes(peer.crashing_thread), yes(peer.native)]
        lines.append(
            [
                str(row.cell),
                *(row.results.get(str(python), "") for python in pythons),
                row.cell.expected.mechanism,
                f"{sorted(row.milliseconds)[len(row.milliseconds) // 2]:.0f}",
                *marks,
                kept(row, "faulthandler"),
                kept(row, "ours"),
            ]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    cells = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    cells.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return cells


def yes(value: bool) -> str:
    return "yes" if value else "no"


def kept(row: Row, watch: str) -> str:
    """The kernel's line with this handler, where the kernel writes one with none."""
    if row.kernel.get("none") is not Seen.YES:
        return ""
    return row.kernel[watch].value


def summary(rows: list[Row], pythons: list[Interpreter], seconds: float) -> list[str]:
    results = [result for row in rows for result in row.results.values()]
    full = sum(result == "ok" for result in results)
    peers = [row.peer for row in rows if row.peer is not None]
    measured = [row for row in rows if row.kernel.get("none") is Seen.YES]
    lines = [
        f"{platform.machine()}, kernel {platform.release()}, glibc {platform.libc_ver()[1]}, "
        f"Python {', '.join(map(str, pythons))}, load {os.getloadavg()[0]:.1f}, {seconds:.0f} s",
        f"ours: {full} complete, {results.count('part')} stated partial, {results.count('FAIL')} failed, "
        f"of {len(results)}",
    ]
    if peers:
        lines.append(
            f"faulthandler {pythons[-1]}: {sum(p.record for p in peers)} of {len(peers)} leave a text, "
            f"{sum(p.crashing_thread for p in peers)} name the crashing thread, {sum(p.native for p in peers)} have "
            f"native frames"
        )
        for watch in ("faulthandler", "ours"):
            states = [row.kernel[watch] for row in measured]
            lines.append(
                f"kernel line kept, {watch}: {states.count(Seen.YES)} of {len(states)}"
                f" ({states.count(Seen.UNKNOWN)} unknown: rate limit)"
            )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="the crash matrix as a table")
    parser.add_argument("--python", action="append", help="3.11; default: each installed one")
    parser.add_argument("--only", default="", help="cells whose name holds this text")
    parser.add_argument("--no-peer", action="store_true", help="without faulthandler and the kernel's lines")
    parser.add_argument("--markdown", type=Path, help="write the table to this file, too")
    args = parser.parse_args()
    pythons = [python for python in PYTHONS if not args.python or str(python) in args.python]
    cells = [c for c in [*PLAIN, *SPECIAL] if args.only in str(c) and (IS_ROOT or not c.needs_root)]
    started = time.monotonic()
    rows = [Row(cell) for cell in cells]
    with Workplace() as place:
        run = Run(place, pythons, peer=not args.no_peer)
        for step in [run.compare, run.rest] if run.peer else [run.rest]:
            for number, row in enumerate(rows, 1):
                step(row)
                results = " ".join(f"{python} {result}" for python, result in row.results.items())
                print(f"{number:4}/{len(rows)} {row.cell!s:45} {results}", file=sys.stderr, flush=True)
        for row in rows:
            print("\n".join(row.wrong), end="\n" if row.wrong else "", file=sys.stderr)
    lines = [*table(rows, pythons), "", *summary(rows, pythons, time.monotonic() - started)]
    wrong = [text for row in rows for text in row.wrong]
    print("\n".join([*lines, *wrong]))
    if args.markdown:
        stated = [f"- `{cell}`: {cell.partial}" for cell in cells if cell.partial]
        args.markdown.write_text("\n".join([*INTRODUCTION, *lines, "", "## Stated partial cells", "", *stated, ""]))
    return 1 if wrong else 0


INTRODUCTION = [
    "# The crash matrix",
    "",
    "Written by `make matrix`. Each death is a real process (`tests/crash/programs`) and each condition is proven by",
    "the process itself before it dies. `ok` = one complete record, the right mechanism, the crashing function among",
    "the native frames, the Python line where the thread has one, and the wait status of the same program without any",
    "handler. `part` = no record can be expected; the status is still the same. `fh` = faulthandler in the same cell:",
    "is there a text, does it hold the crashing thread, native frames. `kernel` = is the kernel's own line about the",
    "fault still written (empty where it writes none without a handler either).",
    "",
]


if __name__ == "__main__":
    sys.exit(main())

"""Usage messages as argparse and click really print them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ftforensics.model.launcher import ExceptionSeen
from ftforensics.parsers.launcher_line import JobLine
from ftforensics.parsers.launcher_usage import UsageReader

ARGPARSE = """
import argparse, sys
parser = argparse.ArgumentParser(prog="train.py")
parser.add_argument("--lr", type=float, required=True)
for index in range(40):
    parser.add_argument(f"--a-long-option-number-{index}")
parser.add_argument("mode", choices=["a", "b"])
parser.parse_args(sys.argv[1:])
"""
CLICK = """
import click
@click.command()
@click.option("--lr", type=float)
def main(lr): ...
main(prog_name="train.py")
"""


def said(text: str, label: str = "", rank: int | None = None) -> list[ExceptionSeen]:
    reader = UsageReader()
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if reader.open or any(anchor in line for anchor in reader.anchors):
            found += list(reader.read(JobLine(line, number, label, rank)))
    return [event for event in [*found, *reader.end()] if isinstance(event, ExceptionSeen)]


def printed(program: str, *arguments: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 2, ran.stderr
    return ran.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--lr", "1", "--local-rank=0"], "unrecognized arguments: --local-rank=0"),
        (["a", "--lr", "x"], "argument --lr: invalid float value: 'x'"),
        (["a"], "the following arguments are required: --lr"),
        (["c", "--lr", "1"], "argument mode: invalid choice: 'c'"),
    ],
    ids=range(4),
)
def test_what_argparse_prints(arguments: list[str], message: str) -> None:
    (event,) = said(printed(ARGPARSE, *arguments), rank=3)
    assert event.type == "SystemExit" and event.message.startswith(message) and event.rank == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--lrr", "1"], "No such option"), (["--lr", "x"], "Invalid value for '--lr'")],
    ids=range(2),
)
def test_what_click_prints(arguments: list[str], message: str) -> None:
    pytest.importorskip("click")
    (event,) = said(printed(CLICK, *arguments))
    assert event.type == "SystemExit" and event.message.startswith(message)


@pytest.mark.parametrize(
    "text",
    [
        "train.py: error: unrecognized arguments: --x",  # without a usage message: anybody may print that
        "usage: train.py [-h]\nother.py: error: unrecognized arguments: --x",
        "usage: train.py [-h]\nINFO train.py: no error: fine",
        "memory usage: high\ntrain.py: error: x",
        "Usage: train.py\nall is well\nanError: no",
    ],
    ids=range(5),
)
def test_other_lines_are_none(text: str) -> None:
    assert said(text) == []


def test_ranks_without_labels_print_in_turns() -> None:
    one = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --local-rank=0"
    assert len(said(f"{one}\n{one}")) == 2
    both = "usage: train.py [-h]\nusage: train.py [-h]\n" + "train.py: error: bad\n" * 2
    assert len(said(both)) == 2


def test_a_usage_message_of_long_ago_is_no_context() -> None:
    assert said("usage: train.py [-h]\n" + "\n" * 500 + "train.py: error: bad") == []

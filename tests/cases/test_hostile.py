"""What a log may look like when nobody meant well, or when it was cut: the answer may get poorer, never wrong.

Wrong is a `proven` for a cause that the label does not accept.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cases.judging import CASES, files_of, label_of, roots_of, verdict_of
from ftforensics.cli.errors import UnreadableInput
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.report import html, json, one_line
from ftforensics.report.terminal import View, render

SEED = 5
CUTS = 8
# Colours, a window's title, a cleared screen, a bell, a carriage return, NUL, CSI's C1 form, a change of direction.
HOSTILE = ("\x1b[31m", "\x1b]0;owned\x07", "\x1b[2J\x1b[H", "\x07", "\r", "\0", "\x9b1m", "\u202e", "\x08\x08")
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ONE_RUN = [case for case in CASES if "earlier" not in label_of(case)]
RUNS = [case for case in ONE_RUN if isinstance(label_of(case)["root"], int) and "torchrun" in case.name]


def text_of(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "surrogateescape")


def write(file: Path, text: str) -> Path:
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return file


def assert_not_wrong(case: Path, found: Diagnosis) -> None:
    label = label_of(case)
    if found.verdict.confidence == "proven":
        assert found.verdict.cause in label.get("cause", [found.verdict.cause])
        assert found.verdict.cause not in label.get("not_cause", [])


def cuts(case: Path, folder: Path) -> Iterator[Diagnosis]:
    """The verdicts on what is left when one of the two logs breaks off or begins late, in the middle of lines and
    between two."""
    dice = random.Random(f"{SEED} {case.name}")
    for name in ("launcher.log", "kernel.log"):
        text = text_of(case / name)
        lines = [match.end() for match in re.finditer("\n", text)]
        places = [dice.randrange(len(text)) for _ in range(CUTS if text else 0)] + dice.sample(
            lines, min(2, len(lines))
        )
        for place in places:
            for kept in (text[:place], text[place:]):
                files = [file if file.name != name else write(folder / name, kept) for file in files_of(case)]
                if label_of(case).get("rests_on", "") not in "".join(map(text_of, files)):
                    continue  # nothing that is left contradicts the other's record
                with contextlib.suppress(UnreadableInput):  # nothing in what is left is known, and it says so
                    yield verdict_of(case, files)


@pytest.mark.parametrize("case", ONE_RUN, ids=lambda case: case.name)
def test_a_log_that_was_cut(case: Path, tmp_path: Path) -> None:
    for found in cuts(case, tmp_path):
        assert_not_wrong(case, found)


@pytest.mark.parametrize("case", ONE_RUN, ids=lambda case: case.name)
def test_control_characters(case: Path, tmp_path: Path) -> None:
    dice = random.Random(f"{SEED} {case.name}")
    files = []
    for file in files_of(case):
        if file.suffix == ".log":
            words = re.split(r"(\s)", text_of(file))
            spoilt = "".join(word + dice.choice(HOSTILE) if dice.random() < 0.1 else word for word in words)
            file = write(tmp_path / file.name, spoilt)
        files.append(file)
    try:
        found = verdict_of(case, files)
    except UnreadableInput as problem:
        assert not CONTROL.search(str(problem))
        return
    assert_not_wrong(case, found)
    assert_nothing_raw(found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_coloured_log_says_the_same(case: Path, tmp_path: Path) -> None:
    """As loggers and rich print: a colour before each line, its end after it, a progress bar's carriage return."""
    lines = text_of(case / "launcher.log").splitlines(keepends=True)
    coloured = "".join(f"\x1b[1;31m{line.rstrip()}\x1b[0m\n" if line.strip() else line for line in lines)
    log = write(tmp_path / "launcher.log", " 12%|#  | 3/25\r 16%|## | 4/25\r\x1b[K\n" + coloured)
    files = [log if file.name == "launcher.log" else file for file in files_of(case)]
    alone, found = verdict_of(case), verdict_of(case, files)
    assert (found.verdict.cause, found.verdict.confidence) == (alone.verdict.cause, alone.verdict.confidence)
    assert roots_of(found) == roots_of(alone)
    assert_nothing_raw(found)


def assert_nothing_raw(found: Diagnosis) -> None:
    view = View(width=100, ascii=False, colour=False, verbose=True, path="run")
    for shown in (render(found, view), html.render(found), json.render(found), one_line.render(found, "run")):
        assert not CONTROL.search(shown)


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07py", "py\x1b[2Jthon", "\x9b31mpython", "py\u202enoht", "a\\x1b[31m"])
def test_a_process_that_calls_itself_after_an_escape_code(name: str, tmp_path: Path) -> None:
    """comm is whatever the process says (prctl); dmesg and syslog files may hold it raw."""
    case = next(case for case in CASES if case.name == "torchrun-oom")
    kernel = text_of(case / "kernel.log").replace("(python)", f"({name})").replace("task=python", f"task={name}")
    kernel += f"[ 2442.000000] {name}[10736]: segfault at 0 ip 00007f99c307b31d sp 0 error 4 in {name}.so[7f0+10]\n"
    log = text_of(case / "launcher.log").replace("python", name)
    found = verdict_of(case, [write(tmp_path / "launcher.log", log), write(tmp_path / "kernel.log", kernel)])
    assert_not_wrong(case, found)
    assert_nothing_raw(found)


@pytest.mark.parametrize("second", RUNS, ids=lambda case: case.name)
def test_two_runs_in_one_log(second: Path, tmp_path: Path) -> None:
    """A script that appends: the verdict is about the last run, or about none."""
    dice = random.Random(f"{SEED} {second.name}")
    # Cases that were made of one run share its pids and its kernel log.
    others = [case for case in RUNS if label_of(case).get("root") != label_of(second).get("root")]
    for first in dice.sample(others, 3):
        pair = (first, second)
        log = write(tmp_path / "launcher.log", "".join(text_of(case / "launcher.log") for case in pair))
        kernel = write(tmp_path / "kernel.log", "".join(text_of(case / "kernel.log") for case in pair))
        found = verdict_of(second, [log, kernel])
        label = label_of(second)
        assert {pid for pid, _ in roots_of(found)} <= {label["root"]}
        if found.verdict.confidence != "undecided":
            assert found.verdict.cause in label["cause"]

"""Tracebacks in other dress: of IPython, exception groups, programs that do not compile, notes; and quotations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ftforensics.model.launcher import ExceptionSeen, LauncherEvent, ProcessDied
from ftforensics.parsers.launcher import read_launcher_log


def events(text: str) -> list[LauncherEvent]:
    return read_launcher_log(text.encode()).events


def seen(text: str) -> list[tuple[str, str, str | None, int | None]]:
    return [(one.type, one.message, one.file, one.file_line) for one in events(text) if isinstance(one, ExceptionSeen)]


def printed(code: str, tmp_path: Path, label: str = "") -> str:
    """What Python prints about `code`."""
    (tmp_path / "job.py").write_text(code)
    done = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return "".join(f"{label}{line}\n" for line in done.stderr.splitlines())


@pytest.mark.parametrize("label", ["", "[rank3]: "])
def test_a_program_that_does_not_compile(tmp_path: Path, label: str) -> None:
    """Of the main program Python prints no heading."""
    (found,) = events(printed("def f(:\n  pass\n", tmp_path, label))
    assert isinstance(found, ExceptionSeen)
    assert (found.type, found.message, found.file_line) == ("SyntaxError", "invalid syntax", 1)
    assert found.rank == (3 if label else None)
    (tmp_path / "job2.py").write_text("if 1:\npass\n")
    (imported,) = events(printed("import job2\n", tmp_path, label))
    assert isinstance(imported, ExceptionSeen)
    assert (imported.type, imported.file_line) == ("IndentationError", 2)


def test_a_quoted_place_is_no_such_program() -> None:
    assert events('  File "a.py", line 3\nstep 4\nSyntaxError: a job says so\n') == []
    assert events('  File "a.py", line 3\n    x\nValueError: x\n') == []


def test_repeated_frames(tmp_path: Path) -> None:
    (found,) = events(printed("def g(): g()\ng()\n", tmp_path))
    assert isinstance(found, ExceptionSeen)
    assert (found.type, found.function) == ("RecursionError", "g")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes and groups are of 3.11")
@pytest.mark.parametrize("label", ["", "[rank3]: "])
def test_notes_are_no_events(tmp_path: Path, label: str) -> None:
    code = "e = ValueError('bad')\ne.add_note('Killed')\ne.add_note('  exitcode  : -9 (pid: 3)')\nraise e\n"
    text = printed(code, tmp_path, label)
    assert [type(one) for one in events(text)][:1] == [ExceptionSeen]
    assert seen(text) == [("ValueError", "bad", str(tmp_path / "job.py"), 4)]
    assert not [one for one in events(text) if isinstance(one, ProcessDied) and one.launcher == "torchrun"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes and groups are of 3.11")
@pytest.mark.parametrize("label", ["", "[rank3]: "])
def test_groups(tmp_path: Path, label: str) -> None:
    code = (
        "def f():\n    raise ValueError('bad')\ntry:\n    f()\nexcept ValueError as e:\n"
        "    raise ExceptionGroup('several', [e, TypeError('odd')]) from None\n"
    )
    text = printed(code, tmp_path, label)
    job = str(tmp_path / "job.py")
    assert seen(text) == [
        ("ExceptionGroup", "several (2 sub-exceptions)", job, 6),
        ("ValueError", "bad", job, 2),
    ]
    assert {one.rank for one in events(text) if isinstance(one, ExceptionSeen)} == {3 if label else None}


DASHES = "-" * 75
# IPython 8.12 (and 7, below) in a notebook's log
NOTEBOOK = f"""\
{DASHES}
RuntimeError                              Traceback (most recent call last)
Cell In[3], line 1
----> 1 main()

File ~/job/train.py:25, in main(rank)
     23     step()
     24     # Traceback
---> 25     fault(rank)

File ~/job/train.py:13, in fault(mode="a: b")
     11 def fault(mode):
---> 12     x = 1; raise RuntimeError("loss is NaN")

RuntimeError: loss is NaN
"""
OLD_NOTEBOOK = f"""\
{DASHES}
ZeroDivisionError                         Traceback (most recent call last)
<ipython-input-2-69a344230c6c> in <module>
----> 1 f(0)

~/job/train.py in f(n)
      1 def f(n):
----> 2     return 1 / n

ZeroDivisionError: division by zero
"""


def test_notebooks() -> None:
    assert seen(NOTEBOOK) == [("RuntimeError", "loss is NaN", "~/job/train.py", 12)]
    assert seen(OLD_NOTEBOOK) == [("ZeroDivisionError", "division by zero", "~/job/train.py", 2)]
    coloured = NOTEBOOK.replace("RuntimeError", "\x1b[0;31mRuntimeError\x1b[0m")
    assert seen(coloured) == seen(NOTEBOOK)


def test_a_notebooks_cell() -> None:
    cell = "Cell In[7], line 4\n----> 4 d['k']\n"
    text = f"{DASHES}\nKeyError      Traceback (most recent call last)\n{cell}\nKeyError: 'k'\n"
    assert seen(text) == [("KeyError", "'k'", "<cell 7>", 4)]


def test_a_notebook_that_is_cut_says_nothing() -> None:
    lines = NOTEBOOK.splitlines(keepends=True)
    for at in range(len(lines)):
        assert seen("".join(lines[:at])) == []


# --- quotations -------------------------------------------------------------------------------------------------------

LINE = "E0517 08:24:03.805000 12 torch/x/api.py:826] failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: python"


@pytest.mark.parametrize(
    "text",
    [
        f"RuntimeError: the last run said {LINE}",
        f"INFO: found '{LINE}' in the log",
        f'INFO: found "{LINE}"',
        "INFO: a rank with exitcode: -9 (pid: 3) was seen",
        "INFO:  exitcode  : -9 (pid: 3)",
        "  exitcode  : -9 (pid: 3)",
        "ValueError: Sending process 77 closing signal SIGTERM",
        "my note: `Closing process 77 via signal SIGTERM`",
        "the job was Killed",
        "Killed by the reviewer",
    ],
)
def test_quoted_words_are_no_evidence(text: str) -> None:
    assert [one for one in events(f"{text}\n") if not isinstance(one, ExceptionSeen)] == []
    whole = f'Traceback (most recent call last):\n  File "a.py", line 3, in f\n{text}\nstep 3\n'
    assert [one for one in events(whole) if not isinstance(one, ExceptionSeen)] == []


def test_a_summary_that_a_logger_quotes() -> None:
    """Every line of it bears the logger's words; the margin would have to be the same."""
    summary = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-29_13:59:50\n"
        "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 77) \n"
    )
    assert len(events(summary)) == 1
    assert len(events("".join(f"node-1| {line}\n" for line in summary.splitlines()))) == 1
    odd = "".join(f"{'>' * at} {line}\n" for at, line in enumerate(summary.splitlines()))
    assert events(odd) == []
    assert events(summary.replace("  exitcode", "x  exitcode")) == []

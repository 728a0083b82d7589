"""Every way out of the command: one line, the right status, never a traceback. Real processes and a real shell."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Shell = Callable[[str], Any]
Run = Callable[..., Any]


def test_version_and_help(run: Run) -> None:
    from ftforensics import __version__

    assert run("--version").out == f"ftforensics {__version__}\n"
    shown = run("--help")
    assert shown.status == 0
    for word in ("analyze", "explain", "Exit status"):
        assert word in shown.out
    for hidden in ("crash_reporter", "crash-reporter", "inventory"):
        assert hidden not in shown.out
    assert "--json" in run("analyze", "--help").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("analyse",), "did you mean analyze?"),
        (("frobnicate",), "the commands are analyze, "),
        (("analyze",), "PATH"),
        (("analyze", "--frob", "x"), "--frob"),
        (("analyze", "--pid", "abc", "x"), "abc"),
        (("analyze", "--color", "mauve", "x"), "mauve"),
        (("\x1b[31m",), "\\x1b[31m"),
        (("explain", "heap"), "heap-corruption"),
        (("explain", "zzz"), "lists them all"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(run: Run, arguments: tuple[str, ...], says: str) -> None:
    shown = run(*arguments)
    assert shown.status == 2
    assert says in shown.complaint


def test_a_record_without_the_word_analyze(run: Run, record: Path) -> None:
    assert f"ftforensics analyze {record}" in run(record).complaint


def test_no_command_shows_the_help_on_stderr(run: Run) -> None:
    shown = run()
    assert shown.status == 2
    assert "analyze" in shown.err
    assert shown.out == ""


def test_the_hidden_commands_answer(shell: Shell) -> None:
    # In processes of their own: they set an alarm that ends them.
    for name in ("inventory", "crash-reporter", "crash_reporter"):
        shown = shell(f"$ft {name}")
        assert shown.status == 2
        assert "usage" in shown.err


def test_a_reader_that_goes_away_is_no_error_message(shell: Shell, record: Path) -> None:
    for line in (
        f"$ft analyze -v {record} | head -1",
        f"$ft analyze {record} | true",
        f"$ft analyze --json {record} | head -c 1",
        "$ft explain native-fault | true",
        "$ft --help | true",
        f"$ft analyze {record} --output /dev/stdout | true",
    ):
        shown = shell(line)
        assert shown.err == "", line
        assert shown.status in (0, 141), line  # 0: everything fitted into the pipe before its reader left


def test_a_full_disk_is_told(shell: Shell, record: Path) -> None:
    for line in (f"$ft analyze {record} > /dev/full", "$ft --help > /dev/full", "$ft explain > /dev/full"):
        shown = shell(line)
        assert shown.status == 1, line
        assert "cannot write to standard output: No space left on device" in shown.complaint


def test_closed_streams(shell: Shell, record: Path) -> None:
    shown = shell(f"$ft analyze {record} >&-")
    assert shown.status == 1
    assert "standard output is closed" in shown.complaint
    shown = shell(f"$ft analyze {record} 2>&-")
    assert shown.status == 0
    assert "null-read" in shown.out
    shown = shell("$ft analyze /none 2>&- >&-")
    assert shown.status == 2
    shown = shell("$ft analyze /none 2>/dev/full")
    assert shown.status == 2
    shown = shell(f"$ft analyze {record} <&-")
    assert shown.status == 0


def test_an_interrupt_is_quiet(environment: Mapping[str, str], record: Path) -> None:
    # GIVEN a run that has reached the command: it says so itself, then waits.
    code = (
        "import sys, signal, ftforensics.cli.inputs as inputs\n"
        "def gather(*a, **k):\n"
        "    print('ready', flush=True); signal.pause()\n"
        "inputs.gather = gather\n"
        "from ftforensics.cli import main; sys.exit(main())\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, "analyze", str(record)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    # WHEN it is interrupted
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    # THEN
    assert child.returncode == 130
    assert err == "ftforensics: interrupted\n"


def with_missing(package: str, *arguments: str) -> list[str]:
    """The command in an interpreter where `package` is not installed, as after `pip install --no-deps`."""
    code = f"import sys; sys.modules[{package!r}] = None; from ftforensics.cli import main; sys.exit(main())"
    return [sys.executable, "-c", code, *arguments]


@pytest.mark.parametrize(
    ("package", "pip_name"),
    [("msgspec", "msgspec"), ("rich", "rich"), ("elftools", "pyelftools"), ("jinja2", "jinja2")],
)
def test_a_missing_package_names_the_pip_command(
    environment: Mapping[str, str], record: Path, tmp_path: Path, package: str, pip_name: str
) -> None:
    extra = ["--html", str(tmp_path / "x.html")] if package == "jinja2" else []
    ended = subprocess.run(
        with_missing(package, "analyze", str(record), *extra), env=environment, capture_output=True, text=True
    )
    if package == "elftools" and ended.returncode == 0:
        return  # symbols are read without it
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"pip install {pip_name}" in ended.stderr


def test_without_any_package_help_and_explain_still_work(environment: Mapping[str, str]) -> None:
    code = (
        "import sys\nfor name in ('msgspec', 'rich', 'jinja2', 'elftools', 'packaging', 'cpp_demangle'):\n"
        "    sys.modules[name] = None\nfrom ftforensics.cli import main; sys.exit(main())"
    )
    for arguments in (["--help"], ["--version"], ["explain"], ["explain", "native-fault"]):
        ended = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""


def test_a_fault_of_our_own_is_one_line_too(run: Run, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ftforensics.cli.inputs as inputs

    def broken(*_: object, **__: object) -> None:
        raise KeyError("x\x1b[31m\ny")

    monkeypatch.setattr(inputs, "gather", broken)
    shown = run("analyze", record)
    assert shown.status == 1
    assert "a fault of ftforensics itself at test_funnel.py" in shown.complaint
    assert "FTFORENSICS_DEBUG=1" in shown.complaint


def test_a_panic_of_a_foreign_package_is_one_line_too(run: Run, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ftforensics.cli.inputs as inputs

    class PanicException(BaseException):
        """As pyo3 makes them: not an Exception."""

    def broken(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(inputs, "gather", broken)
    shown = run("analyze", record)
    assert shown.status == 1
    assert "PanicException: index out of bounds" in shown.complaint


def test_running_out_of_memory_is_told(run: Run, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ftforensics.cli.inputs as inputs

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(inputs, "gather", broken)
    assert run("analyze", record).status == 1


def on_terminal(arguments: list[str], environment: Mapping[str, str], **extra: str) -> str:
    """What the command prints when its three streams are a terminal."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "ftforensics", *arguments],
        env={**environment, "TERM": "xterm-256color", **extra},
        stdin=follower,
        stdout=follower,
        stderr=follower,
        close_fds=True,
    )
    os.close(follower)
    pieces = []
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # EIO: the last one has closed the terminal
            break
        if not piece:
            break
        pieces.append(piece)
    child.wait(timeout=30)
    os.close(leader)
    return b"".join(pieces).decode()


def test_on_a_terminal_the_verdict_is_coloured_and_nothing_else(environment: Mapping[str, str], record: Path) -> None:
    coloured = re.findall(r"\x1b\[[\d;]*m([^\x1b]*)\x1b\[0m", on_terminal(["analyze", str(record)], environment))
    assert coloured in (["LIKELY"], ["PROVEN"])
    assert "\x1b" not in on_terminal(["analyze", str(record)], environment, NO_COLOR="1")
    assert "\x1b" not in on_terminal(["analyze", str(record)], environment, TERM="dumb")
    assert "\x1b" not in on_terminal(["analyze", str(record), "--color", "never"], environment)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_stream_that_cannot_say_it_gets_escapes(
    environment: Mapping[str, str], example: bytes, tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "x.crash.json"
    path.write_bytes(example.replace(b"save_checkpoint", "训练".encode()))
    ended = subprocess.run(
        [sys.executable, "-m", "ftforensics", "analyze", "-v", str(path)],
        env={**environment, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert ended.returncode == 0
    assert ended.stderr == b""
    assert ("训练".encode() if encoding == "utf-8" else b"\\u8bad\\u7ec3") in ended.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_on_every_stream(environment: Mapping[str, str], tmp_path: Path, encoding: str) -> None:
    """Python's own escapes, \\xe9 and \\U0001f3d6, are none of JSON's."""
    path = tmp_path / "train.log"
    path.write_text('Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: épuisé 🏖\n')
    ended = subprocess.run(
        [sys.executable, "-m", "ftforensics", "analyze", "--json", str(path)],
        env={**environment, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert "épuisé 🏖" in json.loads(ended.stdout.decode(encoding))["verdict"]["summary"]

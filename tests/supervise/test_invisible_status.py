"""The end of a job under `run` is the end that it would have without us."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import needs_cc, needs_core_files, needs_unshare
from ftforensics.supervise.ending import exit_code

STAYS_ALIVE = {
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGSTOP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGURG,
    signal.SIGWINCH,
}
FATAL = [number for number in range(1, 32) if number not in STAYS_ALIVE] + [32, 34, 45, 64]
KILL_ITSELF = """
import os, signal, sys
number = int(sys.argv[1])
if number not in (signal.SIGKILL, 32):
    signal.signal(number, signal.SIG_DFL)
os.kill(os.getpid(), number)
"""


@pytest.mark.parametrize("code", [0, 3, 126, 127, 255])
def test_exit_codes(job, code: int) -> None:
    ended = job("sh", "-c", f"exit {code}")
    assert ended.status == code
    assert ended.folder.exists() == (code != 0)
    if code == 0:
        assert ended.out == b"" and ended.err == b""


@pytest.mark.parametrize("number", FATAL)
def test_every_signal(job, number: int) -> None:
    """The last two are glibc's own (32) and of the real-time range."""
    command = [sys.executable, "-S", "-c", KILL_ITSELF, str(number)]
    wrapper = ["sh", "-c", 'ulimit -c 0; exec "$@"', "-"]
    # Without us: 32 cannot be unblocked again by a program of glibc's that inherits it blocked.
    alone = subprocess.run([*wrapper, *command]).returncode
    ended = job(*command, wrapper=wrapper)
    assert ended.status == alone
    if number != 32:
        assert alone == -number
    if alone == 0:
        return
    died = [death for death in ended.evidence.died if death.direct]
    assert [(death.signal, death.code) for death in died] == [(number, None)]


def test_a_command_that_is_not_there(job) -> None:
    ended = job("/no/such/command")
    assert ended.status == 127 and b"/no/such/command" in ended.err


def test_a_command_that_may_not_be_executed(job, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("text")
    ended = job("./data")
    assert ended.status == 126 and b"Permission denied" in ended.err


def test_a_script_without_an_interpreter_line(job, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo from $1; exit 5")
    (tmp_path / "script").chmod(0o755)
    ended = job("./script", "sh")
    assert ended.status == 5 and ended.out == b"from sh\n"


def test_options_of_the_command_are_its_own(job) -> None:
    ended = job("sh", "-c", 'printf "%s|" "$@"', "-", "--dir", "x", "--", "-v", "--help")
    assert ended.out == b"--dir|x|--|-v|--help|"


def test_a_pipeline_inside(job) -> None:
    ended = job("bash", "-c", "yes | head -3; exit ${PIPESTATUS[0]}")
    assert ended.status == 128 + signal.SIGPIPE
    assert ended.out == b"y\n" * 3


def test_a_reader_that_goes_away(shell) -> None:
    """`job | head -1`: the job gets its SIGPIPE."""
    ended = shell('$RUN --quiet -- yes | head -1; exit "${PIPESTATUS[0]}"')
    assert ended.status == 128 + signal.SIGPIPE and ended.out == b"y\n"


@needs_cc
@needs_core_files
def test_the_core_file_is_the_jobs(job, tmp_path: Path) -> None:
    source = tmp_path / "crash.c"
    source.write_text("#include <stdlib.h>\nint main(void) { abort(); }\n")
    subprocess.run(["gcc", "-o", tmp_path / "crash", source], check=True)
    limited = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "-"]
    ended = job(str(tmp_path / "crash"), wrapper=limited)
    assert ended.status == -signal.SIGABRT
    cores = list(tmp_path.glob("core*"))
    assert len(cores) == 1
    memory = cores[0].read_bytes()
    assert str(tmp_path / "crash").encode() in memory and b"ftforensics.supervise" not in memory, (
        "it is the supervisor's"
    )


@needs_unshare
def test_as_pid_1_of_a_container(job) -> None:
    """Pid 1 cannot die of a signal: 128 + n."""
    wrapper = ["unshare", "--pid", "--fork", "--mount-proc"]
    assert job("sh", "-c", "kill -9 $$", wrapper=wrapper).status == 128 + 9


@needs_unshare
def test_a_container_inside(job) -> None:
    ended = job("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", "echo $$; exit 9")
    assert ended.status == 9 and ended.out == b"1\n"


def test_what_a_shell_would_say() -> None:
    assert exit_code(9) == 137 and exit_code(3 << 8) == 3

"""`run` in the environment ledger: the command's line and its end; nothing of it reaches the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import ROOT
from ftforensics.model.ledger import LedgerRun
from ftforensics.supervise import ledger
from ftforensics.wire.ledger import read_runs
from supervised import RUN, environment

# Until the ledger names us, or the deadline: the process beside the command writes two seconds after its start.
WAITS = """
import os, sys, time
ledger = os.environ["XDG_STATE_HOME"] + "/ftforensics/ledger.jsonl"
until = time.monotonic() + 60
while not (os.path.exists(ledger) and os.environ["MARK"] in open(ledger).read()):
    assert time.monotonic() < until, "not written down"
    time.sleep(0.02)
"""


def job(folder: Path, code: str, *, mark: str = "train.py", **more: str) -> tuple[list[str], dict[str, str]]:
    program = folder / "train.py"
    program.write_text(WAITS + code)
    variables = environment(XDG_STATE_HOME=str(folder), XDG_CACHE_HOME=str(folder), HOME=str(folder), MARK=mark)
    return [sys.executable, str(program)], {**variables, **more}


def runs(folder: Path) -> list[LedgerRun]:
    return read_runs((folder / "ftforensics" / "ledger.jsonl").read_bytes())


@pytest.mark.parametrize(
    ("code", "status", "how"),
    [
        ("", 0, ("ok", None, None)),
        ("sys.exit(7)", 7, ("code", None, 7)),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ("signal", 9, None)),
        ("import ctypes; ctypes.string_at(0)", -11, ("signal", 11, None)),
    ],
    ids=["ok", "code", "killed", "crash"],
)
def test_how_the_command_ended(code: str, status: int, how: tuple[object, ...], tmp_path: Path) -> None:
    command, variables = job(tmp_path, code)
    done = subprocess.run(
        [*RUN, "--quiet", "--", *command], cwd=tmp_path, env=variables, capture_output=True, timeout=100
    )
    assert done.returncode == status
    (run,) = runs(tmp_path)
    assert run.ended is not None
    assert (run.ended.how, run.ended.signal, run.ended.code) == how
    assert run.begun.job == str(tmp_path / "train.py")
    assert run.begun.fingerprint.prefix == sys.prefix
    assert "msgspec" in {package.name for package in run.begun.fingerprint.packages}
    preloads = [setting.value for setting in run.begun.fingerprint.variables if setting.name == "LD_PRELOAD"]
    assert preloads == [], "what `run` puts there is no setting of the job's"


def test_the_python_below_a_shell_is_the_one_that_counts(tmp_path: Path) -> None:
    command, variables = job(tmp_path, "", mark='"pid"')
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    line = f"{tmp_path}/venv/bin/python {command[1]}; exit 3"
    done = subprocess.run([*RUN, "--quiet", "--", "sh", "-c", line], cwd=tmp_path, env=variables, timeout=100)
    assert done.returncode == 3
    (run,) = runs(tmp_path)
    assert run.begun.fingerprint.prefix == str(tmp_path / "venv")


def test_short_commands_and_switched_off_leave_nothing(tmp_path: Path) -> None:
    short = environment(XDG_STATE_HOME=str(tmp_path), HOME=str(tmp_path))
    subprocess.run([*RUN, "--", "sleep", "0.1"], cwd=tmp_path, env=short, check=True, timeout=100)
    off = {**short, "FTFORENSICS_LEDGER": "0"}
    subprocess.run([*RUN, "--", "sleep", "2.3"], cwd=tmp_path, env=off, check=True, timeout=100)
    assert not (tmp_path / "ftforensics").exists()


# Until nothing of ours watches a process above this one any more: whoever had a line to write has written it.
OUTLASTS = """
def above(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
watched, pid = set(), os.getpid()
while pid > 1:
    watched.add(b"ledger\\0%d\\0" % pid)
    pid = above(pid)
def commands():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield open(f"/proc/{name}/cmdline", "rb").read()
        except OSError:
            pass
while any(command.endswith(tuple(watched)) for command in commands()):
    assert time.monotonic() < until, "still being written down"
    time.sleep(0.02)
"""


def test_a_run_in_a_run_is_one_line(tmp_path: Path) -> None:
    command, variables = job(tmp_path, OUTLASTS)
    subprocess.run([*RUN, "--", *RUN, "--", *command], cwd=tmp_path, env=variables, check=True, timeout=100)
    (run,) = runs(tmp_path)
    assert run.good


def test_one_supervisor_of_a_node_writes() -> None:
    """srun starts one for each task."""
    assert ledger.entry({"HOME": "/h", "SLURM_LOCALID": "0", "SLURM_PROCID": "8"}, "/r") is not None
    assert ledger.entry({"HOME": "/h", "SLURM_LOCALID": "2", "SLURM_PROCID": "10"}, "/r") is None
    assert ledger.entry({"HOME": "/h", "FTFORENSICS_RUN": "1"}, "/r") is None
    assert ledger.entry({"HOME": "/h", "FTFORENSICS_LEDGER": "0"}, "/r") is None


def test_a_killed_supervisor_leaves_a_run_whose_end_nobody_saw(tmp_path: Path) -> None:
    told, telling = os.pipe()
    command, variables = job(tmp_path, f"os.write({telling}, b'.'); time.sleep(60)")
    process = subprocess.Popen(
        [*RUN, "--no-log", "--", *command], cwd=tmp_path, env=variables, pass_fds=[telling], start_new_session=True
    )
    os.close(telling)
    assert os.read(told, 1) == b"."
    history = [sys.executable, "-m", "ftforensics", "env", "history", "--json"]

    def last() -> dict[str, object]:
        done = subprocess.run(history, env=variables, capture_output=True, check=True, timeout=100)
        found: dict[str, object] = json.loads(done.stdout)[-1]
        return found

    assert (last()["running"], last()["ended"]) == (True, None)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert os.read(told, 1) == b""  # the job is gone too
    os.close(told)
    assert (last()["running"], last()["ended"]) == (False, None)


def test_the_supervisor_itself_loads_nothing_for_it() -> None:
    code = "import sys, ftforensics.supervise.ledger; print([n for n in ('msgspec', 'json') if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"

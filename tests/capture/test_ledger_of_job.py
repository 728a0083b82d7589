"""A job under install() in the environment ledger: how it ended, on every Python; what it ran on; what has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conditions import ROOT, Interpreter
from ftforensics.wire.ledger import read_lines, read_runs
from inventory_wait import WAIT

ENDS = {
    "returns": ("wait_for_inventory()", 0),
    "exits": ("wait_for_inventory(); sys.exit(3)", 3),
    "says": ("wait_for_inventory(); sys.exit('no data')", 1),
    "raises": ("wait_for_inventory(); raise RuntimeError('x')", 1),
    "underscore": ("wait_for_inventory(); os._exit(4)", 4),
    "underscore-well": ("wait_for_inventory(); os._exit(0)", 0),
    "forks": ("wait_for_inventory(); pid = os.fork()\nif pid == 0: sys.exit(5)\nos.waitpid(pid, 0)", 0),
    "at-once": ("sys.exit(6)", 6),
}


def environment(state: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(state),
        "XDG_STATE_HOME": str(state),
        "XDG_CACHE_HOME": str(state),
        **more,
    }


def start(python: str, folder: Path, code: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "train.py"
    program.write_text(f"import ftforensics\nftforensics.install()\n{WAIT}\nimport sys\n{code}\n")
    state = folder if "state" not in more else Path(more.pop("state"))
    return subprocess.Popen(
        [python, str(program), *arguments],
        cwd=folder,
        env=environment(state, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ledger_of(folder: Path) -> Path:
    return folder / "ftforensics" / "ledger.jsonl"


def changes_told(folder: Path, state: Path) -> dict[str, Any]:
    """What the report on the only crash in `folder` says about the last good run."""
    (records,) = [path.parent for path in folder.rglob("*.crash.json")]
    done = subprocess.run(
        [sys.executable, "-m", "ftforensics", "analyze", "--json", records],
        cwd=folder,
        env=environment(state),
        capture_output=True,
        timeout=100,
    )
    changes: dict[str, Any] = json.loads(done.stdout)["changes"]
    return changes


def test_every_way_to_end_is_told_with_its_code(python: Interpreter, tmp_path: Path) -> None:
    started = {}
    for name, (code, _) in ENDS.items():
        ledger_of(tmp_path / name).parent.mkdir(parents=True)
        ledger_of(tmp_path / name).write_bytes(b"torn")  # as if its begin had met a full disk
        started[name] = start(python.path, tmp_path / name, code)
    for name, process in started.items():
        process.communicate(timeout=100)
        assert process.returncode == ENDS[name][1], name
    told = {}
    for name in ENDS:
        data = ledger_of(tmp_path / name).read_bytes()
        told[name] = [(line.how, line.code) for line in read_lines(data) if hasattr(line, "how")]
    expected = {
        name: [("code", status) if status else ("ok", None)] for name, (_, status) in ENDS.items() if name != "at-once"
    }
    assert told == {**expected, "at-once": []}


@pytest.mark.parametrize(
    "more", [{"FTFORENSICS_LEDGER": "0"}, {"LOCAL_RANK": "1", "RANK": "1"}, {"FTFORENSICS_RUN": "1"}], ids=str
)
def test_switched_off_or_anothers_business_leaves_no_line(more: dict[str, str], tmp_path: Path) -> None:
    ledger_of(tmp_path).parent.mkdir()
    ledger_of(tmp_path).touch()
    process = start(sys.executable, tmp_path, "wait_for_inventory()", **more)
    process.communicate(timeout=100)
    assert (process.returncode, ledger_of(tmp_path).read_bytes()) == (0, b"")


@pytest.mark.parametrize("obstacle", ["link", "folder", "file"])
def test_a_job_does_not_notice_a_ledger_that_cannot_be_written(obstacle: str, tmp_path: Path) -> None:
    precious, state = tmp_path / "precious", tmp_path / "state"
    precious.write_bytes(b"mine")
    ledger_of(state).parent.parent.mkdir()
    if obstacle == "file":
        ledger_of(state).parent.touch()
    else:
        ledger_of(state).parent.mkdir()
        ledger_of(state).symlink_to(precious) if obstacle == "link" else ledger_of(state).mkdir()
    process = start(
        sys.executable, tmp_path / "job", "wait_for_inventory(); wait_for_inventory(answered=True)", state=str(state)
    )
    assert (process.communicate(timeout=100)[1], process.returncode) == (b"", 0)
    assert precious.read_bytes() == b"mine"


HOLDS_ON = """
wait_for_inventory()
until = time.monotonic() + 60
def recorded():
    try:
        with open(os.environ["XDG_STATE_HOME"] + "/ftforensics/ledger.jsonl") as file:
            return f'"pid":{os.getpid()},' in file.read()
    except FileNotFoundError:
        return False
while not recorded():
    assert time.monotonic() < until, "not written down"
    time.sleep(0.02)
if "crash" in sys.argv:
    import ctypes
    ctypes.string_at(0)
"""


def test_a_good_run_then_a_change_then_a_crash(tmp_path: Path) -> None:
    """The whole way: two runs of one job, the second crashes, and the report says what had changed between them."""
    folder, state = tmp_path / "job", tmp_path / "state"
    folder.mkdir()
    config = folder / "ds_config.json"
    config.write_text('{"zero_optimization": {"stage": 3}, "wandb": {"api_key": "plain-secret"}}')
    arguments = ("--deepspeed", "ds_config.json", "--hub_token", "plain-token")
    good = start(sys.executable, folder, HOLDS_ON, *arguments, state=str(state), NCCL_DEBUG="INFO")
    assert (good.communicate(timeout=100)[1], good.returncode) == (b"", 0)

    config.write_text('{"zero_optimization": {"stage": 2}, "wandb": {"api_key": "other-secret"}}')
    bad = start(sys.executable, folder, HOLDS_ON, *arguments, "crash", state=str(state), NCCL_DEBUG="WARN")
    bad.communicate(timeout=100)
    assert bad.returncode == -11

    data = ledger_of(state).read_bytes()
    assert b"plain-secret" not in data and b"plain-token" not in data and b"other-secret" not in data
    first, second = read_runs(data)
    assert (first.good, first.begun.job) == (True, str(folder / "train.py"))
    assert first.begun.fingerprint.prefix == sys.prefix
    assert "msgspec" in {package.name for package in first.begun.fingerprint.packages}
    assert second.ended is not None
    assert (second.ended.how, second.ended.signal) == ("signal", 11)
    assert ledger_of(state).stat().st_mode & 0o777 == 0o600

    changes = changes_told(folder, state)
    assert changes["run"] == first.begun.run
    told = [(change["kind"], change["name"], change["before"], change["after"]) for change in changes["items"]]
    assert told == [
        ("variable", "NCCL_DEBUG", "INFO", "WARN"),
        ("config", "ds_config.json: zero_optimization.stage", "3", "2"),
        ("argv", "argument 1", None, "crash"),
    ]


def test_a_crash_before_there_is_a_line_is_compared_too(tmp_path: Path) -> None:
    """Most bad environments crash within two seconds: the record then says what the ledger cannot."""
    folder, state = tmp_path / "job", tmp_path / "state"
    good = start(sys.executable, folder, HOLDS_ON, state=str(state), OMP_NUM_THREADS="4")
    assert (good.communicate(timeout=100)[1], good.returncode) == (b"", 0)
    code = "import ctypes; ctypes.string_at(0)"
    bad = start(sys.executable, folder, code, state=str(state), OMP_NUM_THREADS="8")
    bad.communicate(timeout=100)
    assert bad.returncode == -11
    assert len(read_runs(ledger_of(state).read_bytes())) == 1
    changes = changes_told(folder, state)
    assert [(change["name"], change["before"], change["after"]) for change in changes["items"]] == [
        ("OMP_NUM_THREADS", "4", "8")
    ]

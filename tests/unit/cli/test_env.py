"""`ftforensics env`: two real environments compared and rolled back, snapshots, history, bad usage."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conditions import ROOT
from ftforensics.capture import ledger
from ftforensics.cli import main


def wheel(folder: Path, name: str, version: str) -> None:
    """A wheel as the specification lays it out (packaging.python.org, binary distribution format)."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


class Environments:
    """Two virtual environments with pip, and a folder of wheels that takes the index's place."""

    def __init__(self, folder: Path) -> None:
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        for package in ("moved-on==1.0", "moved-on==2.0", "stays==1.0", "new==1", "gone==3.1"):
            wheel(self.wheels, *package.split("=="))
        self._bare = folder / "bare"
        subprocess.run([sys.executable, "-m", "venv", self._bare], check=True, capture_output=True)
        self.good = self.make(folder / "good", "moved-on==1.0", "stays==1.0", "gone==3.1")
        self.now = self.make(folder / "now", "moved-on==2.0", "stays==1.0", "new==1")

    def make(self, place: Path, *packages: str) -> Path:
        # A venv knows itself by its place: a copy is another one, in a tenth of the time that pip takes to unpack.
        shutil.copytree(self._bare, place, symlinks=True)
        command = [place / "bin" / "python", "-m", "pip", "install", "-q", *packages]
        subprocess.run(command, check=True, env=self.pip_environment(), capture_output=True)
        return place

    def pip_environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CONFIG_FILE": os.devnull,
        }


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    return Environments(tmp_path_factory.mktemp("environments"))


def env(*arguments: str | Path, state: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ftforensics", "env", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "src"),
            "XDG_STATE_HOME": str(state),
            "XDG_CACHE_HOME": str(state),
            "TZ": "UTC",
            **variables,
        },
        cwd=state,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_two_real_environments_are_compared(environments: Environments, tmp_path: Path) -> None:
    done = env("diff", environments.good, environments.now, state=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == ["gone 3.1 is gone", "moved-on 1.0 -> 2.0", "new 1 is new"]
    same = env("diff", environments.now, environments.now, state=tmp_path)
    assert (same.returncode, same.stdout) == (0, "no difference\n")


def test_as_json(environments: Environments, tmp_path: Path) -> None:
    done = env("diff", environments.good, environments.now, "--json", state=tmp_path)
    moved = {"kind": "package", "name": "moved-on", "before": "1.0", "after": "2.0"}
    assert moved in json.loads(done.stdout)


def test_the_way_back_really_leads_back(environments: Environments, tmp_path: Path) -> None:
    changed = environments.make(tmp_path / "changed", "moved-on==2.0", "stays==1.0", "new==1")
    commands = env("diff", environments.good, changed, "--rollback", state=tmp_path)
    assert commands.returncode == 1
    subprocess.run(
        ["sh", "-e"], input=commands.stdout, text=True, check=True, env=environments.pip_environment(), timeout=100
    )
    after = env("diff", environments.good, changed, state=tmp_path)
    assert (after.returncode, after.stdout) == (0, "no difference\n")
    told = subprocess.run(
        [changed / "bin" / "python", "-c", "import moved_on; print(moved_on.version)"], capture_output=True
    )
    assert told.stdout == b"1.0\n"


def test_a_snapshot_is_private_and_comparable(tmp_path: Path) -> None:
    file = tmp_path / "then.json"
    secrets = {"NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_abcdefghijklmnopqrst", "CUDA_API_KEY": "plain-secret"}
    assert env("snapshot", "--output", str(file), state=tmp_path, **secrets).returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert "abcdefghijklm" not in text and "plain-secret" not in text
    snapshot = json.loads(text)
    assert snapshot["schema"] == "ftforensics.snapshot/1"
    assert {"name": "msgspec"}.items() <= next(
        package for package in snapshot["fingerprint"]["packages"] if package["name"] == "msgspec"
    ).items()
    done = env("diff", file, "now", state=tmp_path, NCCL_DEBUG="WARN", CUDA_API_KEY="another")
    assert (done.returncode, done.stdout) == (1, "NCCL_DEBUG INFO -> WARN\n")


def run_lines(run: str, at: float, how: str, **fingerprint: object) -> str:
    host = os.uname().nodename
    fingerprint = {
        "host": host,
        "kernel": "6.1",
        "prefix": "/v",
        "packages": [{"name": "six", "version": "1"}],
        **fingerprint,
    }
    begun = {"type": "begun", "run": run, "at": at, "job": "/w/train.py", "fingerprint": fingerprint}
    ended = {"type": "ended", "run": run, "host": host, "at": at + 5, "how": how}
    return json.dumps(begun) + "\n" + (json.dumps(ended) + "\n" if how else "")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    file = tmp_path / "ftforensics" / ledger.NAME
    file.parent.mkdir()
    lines = run_lines("10-1", 1e9, "ok", torch="2.4.1+cu121")
    lines += run_lines("20-2", 1e9 + 86400, "signal", torch="2.9.1+cu128")
    lines += run_lines("30-3", 1e9 + 2 * 86400, "", torch="2.9.1+cu128", cwd="/\x1b[31mred")
    file.write_text("garbage\n" + lines + '{"type": "beg')
    return tmp_path


def test_history_is_a_line_a_run_with_what_had_changed(state: Path) -> None:
    done = env("history", state=state)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        "2001-09-09 01:46 10-1 ok /w/train.py",
        "2001-09-10 01:46 20-2 signal /w/train.py",
        "torch 2.4.1+cu121 -> 2.9.1+cu128",
        "2001-09-11 01:46 30-3 unseen /w/train.py",
    ]
    runs = json.loads(env("history", "--json", state=state).stdout)
    assert [run["begun"]["run"] for run in runs] == ["10-1", "20-2", "30-3"]


def test_runs_are_named_by_id_or_by_being_good(state: Path) -> None:
    for before in ("10-1", "10", "last-good"):
        done = env("diff", before, "20-2", state=state)
        assert (done.returncode, done.stdout) == (1, "torch 2.4.1+cu121 -> 2.9.1+cu128\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("diff", "no-such-thing"), "is no snapshot, no environment and no run"),
        (("diff", "."), "not a Python environment"),
        (("diff", "garbage.json"), "not a snapshot"),
        (("diff", "--rollback", "--json"), "give one of them"),
        (("diff", "other.json"), "its schema is"),
        (("diff", "fifo"), "not a regular file"),
        ((), "required"),
        (("undo",), "invalid choice"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "garbage.json").write_bytes(b"\xff\x00{")
    (tmp_path / "other.json").write_text('{"at": 1, "fingerprint": {}, "schema": "x/1"}')
    os.mkfifo(tmp_path / "fifo")
    done = env(*arguments, state=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_empty_ledger_is_said_so(tmp_path: Path) -> None:
    empty = env("history", state=tmp_path)
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "no run is in the ledger yet" in empty.stderr
    done = env("diff", state=tmp_path)
    assert done.returncode == 2
    assert "no run that ended well" in done.stderr
    off = env("history", state=tmp_path, FTFORENSICS_LEDGER="0")
    assert off.returncode == 2
    assert "the environment ledger: switched off (FTFORENSICS_LEDGER=0)" in off.stderr


def test_help_says_of_each_command_a_whole_thing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with contextlib.suppress(SystemExit):
        main(["env", "--help"])
    shown = capsys.readouterr().out
    for line in (
        "snapshot            what a run here and now would run on, as JSON",
        "diff                what has changed since the last good run, or between two others",
        "history             the runs, how they ended, what had changed",
    ):
        assert f"    {line}\n" in shown

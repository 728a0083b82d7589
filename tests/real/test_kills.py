"""Real kills, end to end: under `ftforensics run`, and with nothing but `install()` in the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conditions import ROOT, needs_cgroup_v1_memory, needs_root, needs_torch, needs_unshare
from ground.memory_group import MemoryGroup

# One after the other: they load the machine, and each start of `run` looks through everybody's traces.
pytestmark = pytest.mark.xdist_group("kills")

JOB = str(Path(__file__).parent / "programs" / "job.py")
MIB = 1 << 20
PATIENCE = 110


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FTFORENSICS", "SLURM"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src")}


def supervised(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "ftforensics", "run", "--dir", str(folder), *options, "--"]


def job(folder: Path | None, *words: str) -> list[str]:
    return [sys.executable, JOB, "-" if folder is None else str(folder), *words]


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=PATIENCE)
    print(err)  # pytest shows it when a later assertion fails
    return process.returncode, err


def report_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


def analyzed(*words: object) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "ftforensics", "analyze", "--json", *map(str, words)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


def verdict(report: Any) -> tuple[str | None, str]:
    return report["verdict"]["cause"], report["verdict"]["confidence"]


def root(report: Any) -> Any:
    (found,) = [process for process in report["processes"] if process["role"] == "root"]
    return found


# --- memory -----------------------------------------------------------------------------------------------------------


@needs_cgroup_v1_memory
def test_memory_limit_under_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with MemoryGroup(300 * MIB) as group:
        process = start([*group.enter, *supervised(folder), *job(folder, "eat")])
        status, err = finish(process)
        assert group.kills() == 1
    assert status == -signal.SIGKILL
    report = report_of(folder)
    assert verdict(report) == ("cgroup-oom", "proven")
    died = root(report)
    assert (died["exit"]["signal"], died["phase"], died["step"]) == ("SIGKILL", "save_checkpoint", 500)
    assert group.name in report["verdict"]["summary"] and "300 MiB" in report["verdict"]["summary"]
    assert "cgroup-oom" in err or "memory limit" in err
    schema = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "evidence.schema.json").read_text()))
    for line in (folder / "evidence.jsonl").read_text().splitlines():
        schema.validate(json.loads(line))


@needs_cgroup_v1_memory
def test_memory_limit_with_install_alone(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    with MemoryGroup(300 * MIB) as group:
        process = start([*group.enter, *job(folder, "eat")])
        status, _ = finish(process)
        assert status == -signal.SIGKILL and group.kills() == 1
        report = analyzed(folder)
    assert verdict(report) == ("cgroup-oom", "proven")
    died = root(report)
    assert (died["pid"], died["phase"], died["step"]) == (process.pid, "save_checkpoint", 500)
    memory = died["memory"]
    assert memory["limit"] == 300 * MIB
    assert memory["used"] > 0.8 * 300 * MIB
    assert 0.05e9 < memory["growth"] < 1e9  # bytes a second; it takes 0.2 GB/s, on a loaded machine less
    assert memory["last_age"] < 1.0
    assert memory["holders"][0]["pid"] == process.pid
    assert len(memory["points"]) > 5


@needs_cgroup_v1_memory
def test_a_limit_above_the_own_group(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    with MemoryGroup(300 * MIB) as above, MemoryGroup(None, above) as group:
        status, _ = finish(start([*group.enter, *job(folder, "eat")]))
        assert status == -signal.SIGKILL
        report = analyzed(folder)
    assert verdict(report) == ("ancestor-cgroup-oom", "proven")


@needs_cgroup_v1_memory
def test_somebody_elses_kill_just_before_is_not_ours(tmp_path: Path) -> None:
    """A neighbour is killed for its memory; then ours gets kill -9, in the same second."""
    folder = tmp_path / "records"
    ours = start(job(folder, "wait"))
    assert ours.stdout is not None and ours.stdout.readline() == "ready\n"
    with MemoryGroup(100 * MIB) as group:
        assert finish(start([*group.enter, *job(None, "eat")]))[0] == -signal.SIGKILL
    ours.kill()
    finish(ours)
    report = analyzed(folder, "--exit-code", -9)
    assert verdict(report) == ("killed-unknown", "undecided")
    assert not [one for one in report["hypotheses"] if one["cause"].endswith("oom") and one["confidence"] == "likely"]


@needs_cgroup_v1_memory
@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("way", ["run", "install"])
def test_a_data_worker_killed_for_memory(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "records"
    with MemoryGroup(900 * MIB) as group:
        words = [*supervised(folder)] if way == "run" else []
        status, err = finish(start([*group.enter, *words, *job(folder, "worker")]))
        assert status == 1, err
        assert group.kills() == 1
        report = report_of(folder) if way == "run" else analyzed(folder)
    assert verdict(report) == ("cgroup-oom", "proven")
    died = root(report)
    assert died["exit"]["signal"] == "SIGKILL"
    assert died["worker_of"] is not None
    others = [process for process in report["processes"] if process is not died]
    assert all(process["role"] == "collateral" for process in others)


# --- somebody else ----------------------------------------------------------------------------------------------------


def the_job(folder: Path) -> int:
    """The pid that wrote the only ring: HOST-PID-START.ring."""
    (ring,) = folder.glob("*.ring")
    return int(ring.name.rsplit("-", 2)[1])


def wait_until_armed(folder: Path) -> None:
    """Tracing takes 0.1 s to arm; the first line of the evidence comes when it is."""
    deadline = time.monotonic() + PATIENCE
    while not (folder / "evidence.jsonl").exists() or b"\n" not in (folder / "evidence.jsonl").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def killed_by_us(folder: Path, *options: str) -> tuple[Any, int]:
    """kill -9 from this very test, once the job says that it runs. The report, and the pid that was killed."""
    process = start([*supervised(folder, *options), *job(folder, "wait")])
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    pid = the_job(folder)
    wait_until_armed(folder)
    os.kill(pid, signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    return report_of(folder), pid


@needs_root
def test_kill_9_names_its_sender_when_traced(tmp_path: Path) -> None:
    report, pid = killed_by_us(tmp_path / "run")
    assert verdict(report) == ("killed-by-process", "proven")
    assert root(report)["pid"] == pid
    assert f"{os.getpid()} (" in root(report)["by"]


def test_kill_9_is_undecided_when_not_traced(tmp_path: Path) -> None:
    report, pid = killed_by_us(tmp_path / "run", "--no-trace")
    assert verdict(report) == ("killed-unknown", "undecided")
    assert root(report)["pid"] == pid
    assert any("trac" in gap["why"] for gap in report["gaps"])


def test_kill_9_with_install_alone_ended_unseen(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    process = start(job(folder, "wait"))
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.kill()
    finish(process)
    report = analyzed(folder)
    assert report["verdict"]["outcome"] == "unknown"
    assert verdict(report) == (None, "undecided")
    assert verdict(analyzed(folder, "--exit-code", 137)) == ("killed-unknown", "undecided")


@pytest.mark.parametrize("way", ["run", "install"])
def test_sigterm_names_its_sender(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "records"
    process = start([*(supervised(folder) if way == "run" else []), *job(folder, "wait")])
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    pid = the_job(folder)
    os.kill(pid, signal.SIGTERM)
    assert finish(process)[0] == -signal.SIGTERM
    report = report_of(folder) if way == "run" else analyzed(folder)
    # With install() alone nobody saw the wait status; what came last is all there is.
    assert verdict(report) == ("killed-by-process", "proven" if way == "run" else "likely")
    assert root(report)["pid"] == pid and str(os.getpid()) in root(report)["by"]


@pytest.mark.parametrize("limit", ["soft", "hard"])
@pytest.mark.parametrize("way", ["run", "install"])
def test_processor_time_limit(tmp_path: Path, way: str, limit: str) -> None:
    folder = tmp_path / "records"
    words = supervised(folder) if way == "run" else []
    status, _ = finish(start([*words, *job(folder, "burn", limit)]))
    assert status == (-signal.SIGXCPU if limit == "soft" else -signal.SIGKILL)
    more = [] if way == "run" else ["--exit-code", status]
    report = report_of(folder) if way == "run" else analyzed(folder, *more)
    cause, confidence = verdict(report)
    assert cause == "cpu-time-limit"
    assert confidence in ("proven", "likely")


# --- ranks ------------------------------------------------------------------------------------------------------------

RANKS = str(Path(__file__).parent / "programs" / "ranks.py")


def torchrun(way: str, victim: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", RANKS, way, str(victim)]


@needs_root
@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("victim", [0, 1])
def test_the_rank_that_was_killed_is_the_root_and_the_others_are_consequences(tmp_path: Path, victim: int) -> None:
    folder = tmp_path / "run"
    process = start([*supervised(folder), *torchrun("wait", victim)])
    assert process.stdout is not None
    word, pid = next(line for line in process.stdout if line.startswith("victim")).split()
    wait_until_armed(folder)
    os.kill(int(pid), signal.SIGKILL)
    assert finish(process)[0] == 1, word
    report = report_of(folder)
    assert verdict(report) == ("killed-by-process", "proven")
    died = root(report)
    assert (died["pid"], died["rank"], died["exit"]["signal"]) == (int(pid), victim, "SIGKILL")
    assert f"{os.getpid()} (" in died["by"]
    others = [process for process in report["processes"] if process is not died]
    assert others and all(process["role"] == "collateral" for process in others)


@needs_cgroup_v1_memory
@needs_torch
@pytest.mark.torch
def test_the_rank_that_the_kernel_chose_is_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with MemoryGroup(1200 * MIB) as group:
        process = start([*group.enter, *supervised(folder), *torchrun("eat", 1)])
        assert process.stdout is not None
        pid = next(line for line in process.stdout if line.startswith("victim")).split()[1]
        assert finish(process)[0] == 1
        assert group.kills() == 1
    report = report_of(folder)
    assert verdict(report) == ("cgroup-oom", "proven")
    died = root(report)
    assert (died["pid"], died["rank"]) == (int(pid), 1)
    assert died["memory"]["holders"][0]["pid"] == int(pid)
    others = [process for process in report["processes"] if process is not died]
    assert others and all(process["role"] == "collateral" for process in others)


# --- namespaces -------------------------------------------------------------------------------------------------------

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc"]


@needs_unshare
@needs_cgroup_v1_memory
@pytest.mark.parametrize("place", ["outside", "inside", "install"])
def test_in_a_pid_namespace_the_match_still_works(tmp_path: Path, place: str) -> None:
    """The kernel's log has the machine's pid; the job believes itself to be 1 or 2."""
    folder = tmp_path / "records"
    with MemoryGroup(300 * MIB) as group:
        # Only the job is a member: at times the first victim's memory is still charged when the next member asks for a
        # page, and that one dies as well (seen on 6.18).
        eating = [*group.enter, *job(folder, "eat")]
        command = {
            "outside": [*supervised(folder), *UNSHARE, *eating],
            "inside": [*UNSHARE, *supervised(folder), *eating],  # and `run` is pid 1
            "install": [*UNSHARE, *eating],
        }[place]
        finish(start(command))
        assert group.kills() == 1
        report = analyzed(folder) if place == "install" else report_of(folder)
    cause, confidence = verdict(report)
    assert cause == "cgroup-oom"
    # From outside the machine's own pid is known; from inside the group, the sizes and the time tie it.
    assert confidence in (("proven",) if place == "outside" else ("proven", "likely"))
    assert root(report)["exit"]["signal"] == "SIGKILL"

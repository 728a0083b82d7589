"""What `run` knows about every process below the command when it has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import CGROUP_V1_MEMORY, needs_cgroup_v1_memory, needs_proc_events, needs_tracefs, needs_unshare
from ftforensics.model.run import Died, RunEvidence
from ftforensics.wire.run_evidence import read_run_evidence
from supervised import ROOT, wait_for

# A launcher as torchrun is one: it starts ranks, each in a session of its own, and reaps them itself.
LAUNCHER = """
import os, subprocess, sys
ranks = []
for rank in range(3):
    environ = {**os.environ, "RANK": str(rank + 8), "LOCAL_RANK": str(rank)}
    command = [sys.executable, "-S", "-c", sys.argv[1], str(rank)]
    ranks.append(subprocess.Popen(command, env=environ, start_new_session=True))
print(*[rank.pid for rank in ranks], flush=True)
sys.exit(max(abs(rank.wait()) for rank in ranks))
"""
RANK = """
import os, signal, sys, time
rank = int(sys.argv[1])
time.sleep(0.3)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(5 if rank == 2 else 0)
"""


def died(evidence: RunEvidence, pid: int) -> Died:
    found = [death for death in evidence.died if death.pid == pid]
    assert len(found) == 1, f"{pid} died {len(found)} times"
    return found[0]


@needs_proc_events
def test_how_a_process_ended_that_its_own_parent_reaped(job) -> None:
    ended = job(sys.executable, "-c", LAUNCHER, RANK, "--api-key", "hunter2hunter2hunter2")
    assert ended.status == 9
    pids = [int(word) for word in ended.out.split()]
    evidence = ended.evidence
    first, second, third = (died(evidence, pid) for pid in pids)
    assert (first.signal, first.code) == (None, 0)
    assert (second.signal, second.code, second.status) == (9, None, 9)
    assert (third.signal, third.code) == (None, 5)
    assert [one.rank for one in (first, second, third)] == [8, 9, 10]
    assert [one.local_rank for one in (first, second, third)] == [0, 1, 2]
    command = next(death for death in evidence.died if death.direct)
    assert all(one.ppid == command.pid and not one.direct for one in (first, second, third))
    assert second.argv[:3] == [sys.executable, "-S", "-c"] and second.uid == os.getuid()
    assert second.comm and second.start_ticks and second.last_rss and second.nspid == [pids[1]]
    assert "hunter2" not in (ended.folder / "evidence.jsonl").read_text()
    assert evidence.started is not None and evidence.started.child == command.pid
    assert evidence.started.clocks.monotonic < second.at < command.at + 0.01
    # The command's own use has that of what it waited for.
    assert command.usage is not None and command.usage.maxrss and command.usage.maxrss > 1 << 20
    assert evidence.ended is not None and (evidence.ended.code, evidence.ended.signal) == (9, None)
    assert abs(evidence.ended.at - command.at) < 0.01


def test_the_counters_bracket_a_death(job) -> None:
    evidence = job("sh", "-c", "sh -c 'kill -9 $$'; exit 3").evidence
    assert [counted.why for counted in evidence.counted] == ["start", "death", "death", "end"]
    before, after, *_ = evidence.counted
    killed = next(death for death in evidence.died if death.signal == 9)
    assert before.at < killed.at <= after.at
    assert after.at - killed.at < 0.2
    reading = before.reading
    assert reading.oom_kill is not None and reading.mem_total and reading.mem_available
    assert reading.source == "run" and reading.moment.boot_id == evidence.started.boot_id


@needs_unshare
def test_without_the_kernels_events_the_time_is_known_and_perhaps_the_status(job) -> None:
    """In a pid namespace: descendants are looked for, and their ends seen by pidfd. The status is known when we are
    faster than the parent."""
    slow = RANK.replace("0.3", "2.5")
    ended = job(sys.executable, "-c", LAUNCHER, slow, wrapper=["unshare", "--pid", "--fork", "--mount-proc"])
    assert ended.status == 9
    pids = [int(word) for word in ended.out.split()]
    evidence = ended.evidence
    death = died(evidence, pids[1])
    assert (death.status, death.signal, death.code) in ((None, None, None), (9, 9, None))
    assert death.rank == 9 and evidence.started is not None
    assert 2 < death.at - evidence.started.clocks.monotonic < 10
    assert "process events" in {gap.source for gap in evidence.gaps}


@needs_unshare
def test_a_zombie_tells_its_status_without_events(job) -> None:
    """Its parent looks once a second, as launchers do."""
    parent = (
        "import os, sys, time; pid = os.fork(); pid or time.sleep(2); pid or os.abort(); time.sleep(4); sys.exit(3)"
    )
    ended = job(
        sys.executable, "-c", parent, wrapper=["unshare", "--pid", "--fork", "--mount-proc"], options=["--no-preload"]
    )
    assert ended.status == 3
    assert signal.SIGABRT in [death.signal for death in ended.evidence.died if not death.direct]


@needs_tracefs
@needs_proc_events
def test_who_killed_a_process_that_had_just_begun(job) -> None:
    """The trace is not read before it is known that the target is ours."""
    script = "sleep 0.5; for i in 1 2 3 4 5; do bash -c 'kill -9 $$'; done; sleep 0.2; exit 1"
    evidence = job("bash", "-c", script).evidence
    if not evidence.started.traced:
        pytest.skip("signals could not be traced: " + "; ".join(gap.why for gap in evidence.gaps))
    killed = sorted(death.pid for death in evidence.died if death.signal == 9)
    assert len(killed) == 5
    assert sorted(sent.target_tid for sent in evidence.sent if sent.signal == 9) == killed
    assert all(sent.sender_pid == sent.target_tid for sent in evidence.sent if sent.signal == 9)


@needs_tracefs
def test_who_sent_what_the_supervisor_passed_on(start, tmp_path: Path) -> None:
    """It is never the supervisor that is to blame."""
    process = start("sh", "-c", "sleep 0.3; echo ready; exec sleep 60", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    verdict = json.loads((tmp_path / "folder" / "report.json").read_text())["verdict"]
    assert verdict["cause"] == "killed-by-process"
    assert f"(pid {os.getpid()})" in verdict["summary"] and str(process.pid) not in verdict["summary"]


def test_a_daemon_that_loses_its_parent_is_ours(job) -> None:
    """A subreaper gets the orphans: their status and use are known."""
    script = "(bash -c 'sleep 0.2; exit 7' >/dev/null 2>&1 &) ; sleep 0.7; exit 1"
    evidence = job("bash", "-c", script).evidence
    orphan = next(death for death in evidence.died if death.code == 7)
    assert orphan.ppid == evidence.started.pid and orphan.usage is not None and not orphan.direct


ALLOCATE = """
import mmap, os, sys
with open(os.path.join(sys.argv[1], "cgroup.procs"), "w") as procs:
    procs.write(str(os.getpid()))
print("in", flush=True)
import time
time.sleep(1.3)   # longer than between two looks
block = mmap.mmap(-1, 256 << 20)
for at in range(0, 256 << 20, 4096):
    block[at] = 1
"""


@needs_cgroup_v1_memory
def test_a_kill_for_memory_is_counted_in_the_group_that_the_job_had_moved_to(job) -> None:
    group = CGROUP_V1_MEMORY / f"ftf-run-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(96 << 20))
        ended = job(sys.executable, "-S", "-c", ALLOCATE, str(group))
        assert ended.status == -signal.SIGKILL
        evidence = ended.evidence
        path = f"/{group.name}"
        readings = [one for one in evidence.counted if any(level.path == path for level in one.reading.groups)]
        assert [one.why for one in readings] == ["start", "death"]
        kills = [next(level.oom_kill for level in one.reading.groups if level.path == path) for one in readings]
        assert kills[1] - kills[0] == 1
        direct = next(death for death in evidence.died if death.direct)
        assert any(line.endswith(path) for line in direct.cgroup)
        machine = [one.reading.oom_kill for one in readings]
        assert machine[1] > machine[0]
        if evidence.started.kernel_log:
            assert any(f"Killed process {direct.pid}" in line.record for line in evidence.kernel)
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_the_supervisors_own_fault_is_not_the_jobs(job, tmp_path: Path) -> None:
    """A planted fault: the job goes on and its status is delivered."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'ftforensics' in str(sys.orig_argv[1:3]):\n"
        "    import ftforensics.supervise.descendants as d\n"
        "    def broken(*_): raise ValueError('planted')\n"
        "    d.Process.identify = broken\n"
    )
    ended = job("sh", "-c", "echo out; exit 6", env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"})
    assert ended.status == 6 and ended.out == b"out\n"
    assert b"planted" in ended.err


@pytest.mark.parametrize("module", ["ctypes", "ftforensics.supervise.supervisor"])
def test_what_cannot_be_watched_is_run(job, tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nif 'ftforensics' in str(sys.orig_argv[1:3]): sys.modules[{module!r}] = None\n"
    )
    ended = job("sh", "-c", "echo out; kill -15 $$", env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"})
    assert ended.status == -15 and ended.out == b"out\n"
    assert ended.err.startswith(b"ftforensics: the job runs without us: ") and ended.err.count(b"\n") == 1


def test_nowhere_to_write(job, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = {"HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "file"), "XDG_STATE_HOME": str(tmp_path / "file")}
    ended = job("sh", "-c", "pwd; exit 2", options=["--dir", str(tmp_path / "file" / "x")], env=home)
    assert ended.status == 2 and ended.out.strip() == str(tmp_path).encode()


def test_the_disk_is_full(job, tmp_path: Path) -> None:
    """A file size limit stands in for it: writes fail, the job does not."""
    ended = job(
        "sh", "-c", "ulimit -f unlimited; echo out; exit 2", wrapper=["sh", "-c", 'ulimit -S -f 1; exec "$@"', "-"]
    )
    assert ended.status == 2 and ended.out == b"out\n"
    assert isinstance(read_run_evidence((ended.folder / "evidence.jsonl").read_bytes()), RunEvidence)


@pytest.mark.parametrize("where", ["_died", "_let_go_of_streams", "_started"])
def test_a_fault_at_any_time_neither_costs_the_status_nor_starts_the_job_again(job, tmp_path: Path, where: str) -> None:
    """Planted right after the command's start, while it runs, and when it has been waited for."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'ftforensics' in str(sys.orig_argv[1:3]):\n"
        "    import ftforensics.supervise.supervisor as s\n"
        "    def broken(*_): raise ValueError('planted')\n"
        f"    setattr(s if hasattr(s, {where!r}) else s._Watch, {where!r}, broken)\n"
    )
    work = "import os, time; os.write(1, b'out\\n'); time.sleep(0.2); os._exit(6)"
    ended = job(sys.executable, "-S", "-c", work, env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"})
    assert (ended.status, ended.out) == (6, b"out\n")
    assert b"planted" in ended.err and b"runs without us" not in ended.err

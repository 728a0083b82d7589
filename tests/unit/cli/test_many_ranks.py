"""A job's folder with the folders of many ranks or nodes: all is read, and nothing hostile in it stops that."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftforensics.cli import shares
from ftforensics.cli.inputs import WHOLE_RINGS, gather
from ftforensics.cli.progress import Progress
from ftforensics.diagnose import diagnose, judge
from ftforensics.diagnose.names import module_offsets
from ftforensics.model.case import Case
from synth.crash_record import CrashText
from synth.exception_record import exception_bytes, raised
from synth.ring import Fast, fast, ring_bytes, sig

Run = Callable[..., Any]
RANKS = 200
CULPRIT = 147
KERNEL = (
    "[ 1060.000000] Memory cgroup out of memory: Killed process {pid} (python) total-vm:9000000kB, anon-rss:4194304kB,"
    " file-rss:5000kB, shmem-rss:0kB, UID:1000 pgtables:9000kB oom_score_adj:0\n"
)
PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:49298\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "/job/train.py", line 88, in main\n    step()\n'


def samples(count: int) -> list[Fast]:
    return [fast(1060.0 - (count - at) / 10, rss_anon=4 << 30, usage=4 << 30) for at in range(count)]


def ring(rank: int, *, count: int = 40) -> bytes:
    stopped = [] if rank == CULPRIT else [sig(1061.0, 15, pid=7, uid=1000, fatal=True)]
    return ring_bytes(pid=1000 + rank, rank=rank, world_size=RANKS, fast=samples(count), signals=stopped)


def gathered(*paths: Path, **options: Any) -> Case:
    with Progress() as progress:
        return gather([str(path) for path in paths], **{"pid": None, "rank": None, "progress": progress, **options})


def job(folder: Path, *, flat: bool = False) -> None:
    """A rank killed for memory, the others ended by their launcher."""
    for rank in range(RANKS):
        place = folder if flat else folder / f"node-{rank // 8}" / f"rank_{rank}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"gpu-07-rank{rank}.ring").write_bytes(ring(rank))
        if rank != CULPRIT:
            (place / f"rank{rank}.stderr.log").write_text(f"[rank{rank}]: {TRACEBACK}[rank{rank}]: {PEER}")
    (folder / "kern.log").write_text(KERNEL.format(pid=1000 + CULPRIT))


@pytest.mark.parametrize("flat", [True, False])
def test_all_ranks_are_read_and_the_culprit_is_named(run: Run, tmp_path: Path, flat: bool) -> None:
    job(tmp_path, flat=flat)
    shown = run("analyze", tmp_path)
    assert shown.status == 0, shown.err
    assert f"rank {CULPRIT} (pid {1000 + CULPRIT})" in " ".join(shown.out.partition("For ")[0].split())
    assert "killed by the kernel" in shown.out.lower()


def test_shares_of_several_processes_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(tmp_path)
    alone = gathered(tmp_path)
    monkeypatch.setattr(shares, "_WORTH_IT", 50)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert gathered(tmp_path) == alone
    assert len(alone.rings) == RANKS and len(alone.launcher_logs) == RANKS - 1


@pytest.mark.parametrize("many", [10, 300], ids=["alike", "each by itself"])
def test_deaths_that_several_processes_judge_are_judged_alike(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(tmp_path)
    case = gathered(tmp_path)
    monkeypatch.setattr(judge, "MANY", many)
    alone = diagnose(case)
    monkeypatch.setattr(shares, "_WORTH_IT", 50)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert diagnose(case, module_offsets, shares.in_shares) == alone
    assert [one.rank for one in alone.processes if one.role == "root"] == [CULPRIT]


def test_the_share_of_a_child_that_dies_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_WORTH_IT", 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    here = os.getpid()

    def work(share: Any) -> list[int]:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return [number * 2 for number in share]

    assert shares.in_shares([1, 2, 3, 4, 5], work) == [[2, 4, 6], [8, 10]]


def test_large_rings_are_read_whole_only_where_it_may_have_begun(tmp_path: Path) -> None:
    for rank in range(RANKS):
        (tmp_path / f"{rank}.ring").write_bytes(ring(rank, count=1500))
    case = gathered(tmp_path)
    whole = {one.ring.process.rank for one in case.rings if len(one.ring.fast) == 1500}
    assert len(whole) == WHOLE_RINGS and CULPRIT in whole
    others = [one.ring for one in case.rings if one.ring.process.rank not in whole]
    assert [ring.last for ring in others] == pytest.approx([1059.9] * len(others))
    assert all(ring.gaps == [] and len(ring.signals) == 1 for ring in others)


def test_torchruns_own_folder_of_logs(tmp_path: Path) -> None:
    for attempt in range(2):
        for local in range(2):
            place = tmp_path / "none_ab12cd" / f"attempt_{attempt}" / str(local)
            place.mkdir(parents=True)
            (place / "stdout.log").touch()
            label = f"[rank{local + 4}]: " if local else ""
            text = "".join(label + line + "\n" for line in f"{TRACEBACK}ValueError: no".splitlines())
            (place / "stderr.log").write_text(text)
    logs = gathered(tmp_path).launcher_logs
    assert [(log.attempt, log.local_rank, log.rank) for log in logs] == [
        (0, 0, None),
        (0, 1, 5),
        (1, 0, None),
        (1, 1, 5),
    ]


def test_error_files_of_torchrun_and_exception_records(tmp_path: Path) -> None:
    place = tmp_path / "none_ab12cd" / "attempt_1" / "3"
    place.mkdir(parents=True)
    said = '{"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "%s", "timestamp": "1764435360"}}}'
    stack = f"{TRACEBACK}ValueError: no\n".replace('"', '\\"').replace("\n", "\\n")
    (place / "error.json").write_text(said % stack)
    (tmp_path / "r1.exception.json").write_bytes(exception_bytes(raised("RuntimeError", "x"), rank=1, pid=51))
    case = gathered(tmp_path)
    assert [one.record.exceptions[0].type for one in case.exceptions] == ["RuntimeError", "ValueError"]
    assert case.exceptions[1].record.attempt == 1
    narrowed = gathered(tmp_path, rank=2)
    assert [one.record.exceptions[0].type for one in narrowed.exceptions] == ["ValueError"]  # it names no rank
    assert len(gathered(tmp_path / "r1.exception.json", pid=51).exceptions) == 1


def test_a_path_says_whose_words_they_are_unless_it_says_so_twice(tmp_path: Path) -> None:
    for node in ("a", "b"):
        for rank in ("rank0", "rank1"):
            if (node, rank) != ("b", "rank1"):
                (tmp_path / node / rank).mkdir(parents=True)
                (tmp_path / node / rank / "stderr.log").write_text(f"{TRACEBACK}ValueError: no\n")
    logs = gathered(tmp_path).launcher_logs
    # Two are rank 0: so it counts within a node. There is one rank 1.
    assert [(log.rank, log.local_rank) for log in logs] == [(None, 0), (1, None), (None, 0)]
    assert [event.rank for log in logs for event in log.events if hasattr(event, "rank")] == [None, 1, None]


def test_a_launchers_log_in_a_ranks_folder_keeps_its_own_labels(tmp_path: Path) -> None:
    (tmp_path / "rank_0").mkdir()
    lines = [f"[rank{rank}]: {line}" for rank in (2, 3) for line in f"{TRACEBACK}ValueError: no".splitlines()]
    (tmp_path / "rank_0" / "out.log").write_text("\n".join(lines) + "\n")
    (log,) = gathered(tmp_path).launcher_logs
    assert log.rank is None and {getattr(event, "rank", None) for event in log.events} == {2, 3}


def test_hostile_things_in_a_folder(run: Run, tmp_path: Path) -> None:
    job(tmp_path)
    os.mkfifo(tmp_path / "pipe.log")
    os.mkfifo(tmp_path / "node-0" / "x.ring")
    (tmp_path / "node-1" / "back").symlink_to(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "node-2" / "nowhere.log").symlink_to("/none")
    (tmp_path / "again").symlink_to(tmp_path / "node-3")
    odd = tmp_path / "rank_\x1b[31m\u202e;\n 7"
    odd.mkdir()
    (odd / "a.ring").write_bytes(ring(3)[:5000])
    (tmp_path / "bytes").mkdir()
    os.mkdir(os.fsencode(tmp_path) + b"/bytes/\xff\xfe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.log"))
        shown = run("analyze", tmp_path)
    assert shown.status == 0
    assert "\x1b[31m" not in shown.out + shown.err and "\u202e" not in shown.out + shown.err
    assert f"rank {CULPRIT} " in shown.out.partition("For ")[0]
    case = gathered(tmp_path)
    assert len(case.rings) == RANKS + 1  # each once, whatever leads to it


def test_the_same_trouble_is_told_once(run: Run, tmp_path: Path) -> None:
    job(tmp_path)
    for rank in range(RANKS):
        (tmp_path / "node-0" / f"{rank}.crash.json").touch()
    shown = run("analyze", tmp_path)
    assert shown.status == 0
    assert shown.complaint.endswith(f"(left out), and {RANKS - 1} more like it")


def test_folders_that_cannot_be_read_are_one_line(run: Run, tmp_path: Path) -> None:
    job(tmp_path)
    run("analyze", tmp_path)  # what has to be imported is, before we give up the right to read it
    for rank in range(8):
        (tmp_path / "node-0" / f"rank_{rank}").chmod(0)
    was = os.geteuid()
    for path in [tmp_path, *tmp_path.rglob("*")]:
        if was == 0 and not path.is_symlink():
            os.chown(path, 65534, -1)
    above = [folder for folder in tmp_path.parents if folder.stat().st_uid == was and folder.stat().st_mode & 0o77 == 0]
    for folder in above if was == 0 else []:
        folder.chmod(0o711)
    if was == 0:
        os.seteuid(65534)  # root passes every permission check
    try:
        shown = run("analyze", tmp_path)
    finally:
        os.seteuid(was)
        for folder in above if was == 0 else []:
            folder.chmod(0o700)
    assert shown.status == 0
    assert "Permission denied" in shown.complaint and "and 7 more like it" in shown.complaint


def test_depth_and_number_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    deep = tmp_path
    for level in range(7):
        (deep / "a.ring").write_bytes(ring(level))
        deep = deep / "d"
        deep.mkdir()
    assert [one.ring.process.rank for one in gathered(tmp_path).rings] == [0, 1, 2, 3, 4]
    assert [one.ring.process.rank for one in gathered(tmp_path, deep=False).rings] == [0]
    monkeypatch.setattr("ftforensics.cli.folders.MOST_FILES", 5)
    shown = run("analyze", tmp_path)
    assert "only the first 5 files in it were looked at" in shown.complaint


def test_what_a_job_keeps_beside_its_evidence_is_passed_over(tmp_path: Path) -> None:
    job(tmp_path)
    for name in (".git", "site-packages", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.ring").write_bytes(ring(0))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "shard.bin").write_bytes(os.urandom(100))
    (tmp_path / "data" / "package.json").write_text('{"name": "x"}')
    assert len(gathered(tmp_path).rings) == RANKS


def test_two_runs_in_one_folder_are_both_read_with_their_places(tmp_path: Path) -> None:
    for number, name in enumerate(("first", "second")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.ring").write_bytes(ring(number))
        (tmp_path / name / "a.crash.json").write_bytes(CrashText().segv(0x28, "read").data())
    case = gathered(tmp_path)
    assert [one.path for one in case.rings] == [str(tmp_path / name / "a.ring") for name in ("first", "second")]
    assert len(case.records) == 2


def test_a_helpers_report_under_another_name_is_found_once_for_all(tmp_path: Path) -> None:
    for rank in range(RANKS):
        (tmp_path / f"{rank}.crash.json").write_bytes(CrashText().segv(0x28, "read").data())
    (tmp_path / "renamed.helper.json").write_text('{"schema": "ftforensics.helper/1", "record": "7.crash.json"}')
    case = gathered(tmp_path)
    assert [os.path.basename(str(one.path)) for one in case.records if one.helper] == ["7.crash.json"]

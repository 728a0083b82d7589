"""The outside process that helper="auto" starts at a crash: what it adds, and that it never costs more than it may."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cells import Cell
from conditions import needs_cgroup_v1_memory, needs_py_spy
from harness import Baselines, Death, Workplace, command, die, environment, failures

LIMIT = 10.0  # seconds that a death may be delayed
CELL = Cell("null_read", "thread", helper="auto")


def verdict_lines(death: Death) -> list[str]:
    return [line for line in death.stderr.splitlines() if line.startswith("ftforensics: ")]


def helper_report(death: Death) -> dict[str, object]:
    (path,) = sorted((death.folder / "records").glob("*.helper.json"))
    report = json.loads(path.read_text())
    assert report["schema"] == "ftforensics.helper/1"
    assert report["record"] == death.records[0].name
    assert path.stat().st_mode & 0o777 == 0o600
    return report  # type: ignore[no-any-return]


def reporter_stage(death: Death) -> dict[str, object]:
    stages = json.loads(death.records[0].read_bytes())["stages"]
    (stage,) = [stage for stage in stages if stage["name"] in ("reporter", "helper")]
    return stage  # type: ignore[no-any-return]


@needs_py_spy
@pytest.mark.parametrize("context", ["main", "thread", "c_thread", "300_threads"])
def test_adds_all_threads_and_five_lines(context: str, place: Workplace, baselines: Baselines) -> None:
    cell = replace(CELL, context=context, python=None if context == "c_thread" else CELL.python)
    death = die(cell, "ours", place)
    assert not failures(death, baselines.of(cell, sys.executable), place.build, None)
    lines = verdict_lines(death)
    assert len(lines) == 5, death.stderr
    assert str(death.records[0]) in lines[-1]
    assert "crash_null_read" in death.stderr
    report = helper_report(death)
    threads = report["threads"]
    assert isinstance(threads, list)
    assert len(threads) >= {"main": 1, "300_threads": 302}.get(context, 2)
    functions = {frame["function"] for thread in threads for frame in thread["frames"]}
    assert "main" in functions
    if context == "300_threads":
        waiting = [t for t in threads if any(str(f["function"]).endswith("wait_for_batch") for f in t["frames"])]
        assert len(waiting) == 300


@needs_py_spy
def test_heap_locked(place: Workplace, baselines: Baselines) -> None:
    cell = replace(CELL, fault="malloc_locked")
    death = die(cell, "ours", place)
    assert not failures(death, baselines.of(cell, sys.executable), place.build, None)
    assert len(verdict_lines(death)) == 5, death.stderr
    assert helper_report(death)["threads"]


def test_ptrace_refused_is_said_with_a_way_out(place: Workplace, baselines: Baselines) -> None:
    cell = replace(CELL, setup="no_ptrace", proof="EPERM")
    death = die(cell, "ours", place)
    assert not failures(death, baselines.of(cell, sys.executable), place.build, None)
    assert len(verdict_lines(death)) == 5, death.stderr
    gap = helper_report(death)["gap"]
    assert isinstance(gap, dict)
    assert "ptrace" in gap["source"] + gap["why"]
    assert gap["grant"]


def processes_with(*texts: bytes) -> list[int]:
    """Processes whose command line holds each text."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if all(text in line for text in texts) and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found


def test_stopped_reporter_does_not_keep_the_process(place: Workplace, baselines: Baselines) -> None:
    """SIGSTOP is the worst case: no exit, no answer, no progress."""
    stopped: list[int] = []
    folder = place.fresh()
    started = time.monotonic()
    with open(folder / "err", "wb") as err:
        process = subprocess.Popen(
            command(CELL, "ours", folder, place.build, sys.executable),
            env=environment(folder, CELL),
            stdout=subprocess.DEVNULL,
            stderr=err,
        )

        def stop_reporter() -> None:
            while process.poll() is None and not stopped and time.monotonic() < started + 30:
                for pid in processes_with(b"crash-reporter", str(folder).encode()):
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)

        hunter = threading.Thread(target=stop_reporter)
        hunter.start()
        status = process.wait(60)
        took = time.monotonic() - started
        hunter.join()
    assert stopped, "the reporter was never seen"
    assert status == -signal.SIGSEGV
    # 10 s and the process's own life, on a machine that may be busy
    assert took < LIMIT + 3, took
    (record,) = (folder / "records").glob("*.crash.json")
    stages = json.loads(record.read_bytes())["stages"]
    assert [stage for stage in stages if stage["name"] in ("reporter", "helper") and not stage["ok"]], stages
    with pytest.raises(ProcessLookupError):
        os.kill(stopped[0], 0)


def words(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    except OSError:
        return set()


def test_one_stack_tool_at_a_time_in_a_folder(place: Workplace) -> None:
    """Eight ranks that crash together start one py-spy, not eight."""
    folder = place.fresh()
    processes = [
        subprocess.Popen(
            command(CELL, "ours", folder, place.build, sys.executable),
            env=environment(folder, CELL),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    pids = {str(process.pid).encode() for process in processes}
    most = 0
    deadline = time.monotonic() + 60
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        most = max(most, sum(bool(pids & words(pid)) for pid in processes_with(b"py-spy", b"dump")))
    assert [process.wait(60) for process in processes] == [-signal.SIGSEGV] * 8
    records = sorted((folder / "records").glob("*.crash.json"))
    assert len(records) == 8
    for record in records:
        assert list(json.loads(record.read_bytes()))[-1] == "end"
    assert most == 1
    assert len(list((folder / "records").glob("*.helper.json"))) < 8
    texts = [process.stderr.read() for process in processes if process.stderr is not None]
    for process in processes:
        assert process.stderr is not None
        process.stderr.close()
    assert 1 <= sum(text.count(b"ftforensics: ") == 5 for text in texts) <= 8


@needs_cgroup_v1_memory
def test_none_when_memory_is_short(place: Workplace, baselines: Baselines) -> None:
    """Below 256 MB free under the limit a helper could be what the OOM killer takes next."""
    group = Path(f"/sys/fs/cgroup/memory/ftf-crash-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(200 << 20))
        folder = place.fresh()
        words = command(CELL, "ours", folder, place.build, sys.executable)
        script = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        process = subprocess.run(
            ["sh", "-c", script, "sh", *words], env=environment(folder, CELL), capture_output=True, timeout=60
        )
        assert process.returncode == -signal.SIGSEGV
        assert b"ftforensics: " not in process.stderr
        (record,) = (folder / "records").glob("*.crash.json")
        (stage,) = [s for s in json.loads(record.read_bytes())["stages"] if s["name"] in ("reporter", "helper")]
        assert not stage["ok"] and "256 MB" in stage["error"]
    finally:
        group.rmdir()

"""Kills in a row: each leaves a readable ring, and its last sample is young. `benchmarks/ring_age.py` does hundreds."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from conditions import CGROUP_V1_MEMORY, PYTHONS, ROOT, Interpreter, needs_cgroup_v1_memory
from jobs import Jobs
from rings import only_ring, read, ring_paths, start

PERIOD = 0.1


@pytest.fixture(scope="module")
def ring_age() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ring_age", ROOT / "benchmarks" / "ring_age.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ring_age"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_six_kills_in_a_row(ring_age: ModuleType) -> None:
    ages = ring_age.kills(PYTHONS[0].path, 6)
    assert ring_age.within_reach(ages), ring_age.describe("kill -9", ages)


@needs_cgroup_v1_memory
def test_six_oom_kills_in_a_row(ring_age: ModuleType) -> None:
    ages = ring_age.ooms(PYTHONS[-1].path, 6)
    assert ring_age.within_reach(ages), ring_age.describe("OOM", ages)
    assert any(age.period < PERIOD for age in ages)  # close to the limit it looks more often


GROUP = """
import os, time
def move(group):
    open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
"""


def wait_until(met: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not met():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Path:
    path = CGROUP_V1_MEMORY / f"ftforensics-test-{os.getpid()}"
    (path / "step").mkdir(parents=True, exist_ok=True)
    (path / "memory.limit_in_bytes").write_text(str(160 << 20))

    def remove() -> None:
        # A test that failed has left its processes there; nobody else's are in a group of this name.
        for pid in (path / "step" / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        for level in (path / "step", path):
            for _ in range(100):
                try:
                    level.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)

    request.addfinalizer(remove)
    return path


@needs_cgroup_v1_memory
def test_the_whole_chain_of_groups_is_read_and_followed(group: Path, python: Interpreter, jobs: Jobs) -> None:
    """The process is moved after install; the limit is its parent group's; a neighbour is OOM-killed in it."""
    code = GROUP + textwrap.dedent(f"""
        tell(os.getpid())
        move({str(group / "step")!r})
        tell()
        neighbour = os.fork()
        if neighbour == 0:
            blocks = []
            while True:
                blocks.append(bytearray(b"x") * (4 << 20))
        def wait():
            return os.waitstatus_to_exitcode(os.waitpid(neighbour, 0)[1])
        print(wait(), flush=True)
        tell(time.monotonic())
        """)
    job = start(jobs, python, code)
    job.line()
    (path,) = ring_paths(job.folder)
    job.go_on()
    job.line()
    wait_until(lambda: any(line.endswith("/step") for line in read(path).process.cgroup))
    job.go_on()
    assert job.line() == "-9"
    dead = float(job.line())
    wait_until(lambda: (read(path).last or 0) > dead + 1.2)
    ring = read(path)
    readings = [sample.reading for sample in ring.slow if sample.reading and sample.reading.groups]
    name = f"/{group.name}"
    own, above = readings[-1].groups[:2]
    assert (own.path, above.path) == (f"{name}/step", name)
    assert (own.limit, above.limit) == (None, 160 << 20)
    assert own.inode == (group / "step").stat().st_ino and own.version == 1
    # The kill is counted in the group of the task that was killed.
    assert own.oom_kill == 1 and above.failcnt
    assert own.anon is not None and own.usage is not None
    assert readings[-1].groups[-1].path == "/"
    assert any(line.endswith(f":{name}/step") for line in ring.process.cgroup)
    # usage fell by far more than a sixty-fourth of the limit: the counters were read at once, out of their turn of one
    # each second
    first = next(i for i, r in enumerate(readings) if r.groups[0].path == f"{name}/step" and r.groups[0].oom_kill)
    before, counted = (readings[index].moment.monotonic for index in (first - 1, first))
    assert before is not None and counted is not None and counted - before < 0.95


@needs_cgroup_v1_memory
def test_a_worker_that_the_oom_killer_chose(group: Path, jobs: Jobs) -> None:
    code = GROUP + textwrap.dedent(f"""
        move({str(group / "step")!r})
        pid = os.fork()
        if pid == 0:
            time.sleep(0.3)
            blocks = []
            while True:
                blocks.append(bytearray(b"x") * (2 << 20)); time.sleep(0.005)
        print(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        """)
    job = start(jobs, PYTHONS[0], code)
    worker, status = (int(word) for word in job.line().split())
    assert status == -9
    assert job.end() == (0, "")
    ring = only_ring(job.folder)
    assert (ring.process.pid, ring.process.worker_of) == (worker, job.process.pid)
    assert ring.end.how is None
    last = ring.fast[-1]
    assert last.rss_anon is not None and last.rss_anon > 80 << 20
    assert last.usage is not None and last.usage > 100 << 20

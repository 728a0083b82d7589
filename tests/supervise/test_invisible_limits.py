"""A job under `run` where there is little of anything: the job has what it would have had without us."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions import needs_cgroup_v1_pids, needs_prlimit
from supervised import RUN, environment

TWO_LINES = ["sh", "-c", "echo one; sleep 0.1; echo two; exit 5"]


@needs_prlimit
def test_without_room_for_the_copiers_threads_the_job_has_our_own_streams(job) -> None:
    """`ulimit -s` is what a thread's stack takes of `ulimit -v`."""
    ended = job(*TWO_LINES, wrapper=["prlimit", f"--stack={1 << 30}", f"--as={500 << 20}"])
    assert (ended.status, ended.out) == (5, b"one\ntwo\n")


FEW_THREADS = """
import sys
if 'ftforensics' in str(sys.orig_argv[1:3]):
    import threading
    begin = threading.Thread.start
    def start(self):
        if len(threading.enumerate()) >= int(%r):
            raise RuntimeError("can't start new thread")
        begin(self)
    threading.Thread.start = start
"""


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_copier_that_cannot_have_its_threads_is_none(job, tmp_path: Path, threads: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(FEW_THREADS % threads)
    ended = job(*TWO_LINES, env={"PYTHONPATH": f"{tmp_path}:{environment()['PYTHONPATH']}"})
    assert (ended.status, ended.out) == (5, b"one\ntwo\n")
    assert any(gap.source == "launcher.log" for gap in ended.evidence.gaps)


@pytest.fixture
def few_processes() -> Iterator[Path]:
    group = Path("/sys/fs/cgroup/pids") / f"ftf-few-{os.getpid()}"
    group.mkdir()
    yield group
    group.rmdir()


MINE = """
import os, pathlib
here = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
print(here)
"""


@needs_cgroup_v1_pids
@pytest.mark.parametrize("most", range(1, 9))
def test_without_processes_to_be_had_the_job_runs_in_our_place(job, few_processes: Path, most: int) -> None:
    """And finds no children that it never made. `most` processes and threads: each of our steps is refused once."""
    (few_processes / "pids.max").write_text(str(most))
    enter = ["sh", "-c", f'echo 0 > {few_processes}/cgroup.procs; exec "$@"', "-"]
    ended = job(sys.executable, "-S", "-c", MINE + "os._exit(5)", wrapper=enter)
    assert (ended.status, ended.out) == (5, b"[]\n")


@needs_prlimit
@pytest.mark.parametrize("most", [6, 8, 10, 12, 16, 20])
def test_few_descriptors(job, most: int) -> None:
    ended = job(*TWO_LINES, wrapper=["prlimit", f"--nofile={most}:{most}"])
    assert (ended.status, ended.out) == (5, b"one\ntwo\n")


def test_a_command_line_that_just_fits(tmp_path: Path) -> None:
    """What we add to the environment is the first thing to go."""
    bare = {name: environment()[name] for name in ("PATH", "PYTHONPATH")}

    def status(before: list[str], size: int) -> int:
        words = ["x" * 1000] * (size // 1000) + ["x" * (size % 1000)]
        try:
            return subprocess.run(
                [*before, "true", *words], env=bare, cwd=tmp_path, stderr=subprocess.DEVNULL
            ).returncode
        except OSError:
            return 126

    most, too_much = 100_000, resource.getrlimit(resource.RLIMIT_STACK)[0] // 4 + 100_000
    if too_much > 1 << 26:
        pytest.skip("the limit of the stack is not what bounds a command line here")
    while too_much - most > 1:
        middle = (most + too_much) // 2
        most, too_much = (middle, too_much) if status([], middle) == 0 else (most, middle)
    ours = sum(len(os.fsencode(word)) + 1 + 8 for word in [*RUN, "--quiet", "--"]) + 16  # a pointer for each
    ours += len(sys.executable) + 1  # the kernel keeps the path of the program itself, too
    assert status([*RUN, "--quiet", "--"], most - ours) == 0

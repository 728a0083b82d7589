"""DeepSpeed's launcher says how one of its processes ended, and prints the command of the last that it started."""

from __future__ import annotations

import pytest

from ftforensics.diagnose import diagnose
from ftforensics.model.case import Case
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.parsers.kernel_log import read_kernel_log
from ftforensics.parsers.launcher import read_launcher_log

RANKS = range(4)
FIRST_PID = 4000
STAMP = "[2026-11-29 14:29:{second},235]"
LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:1234"
)
OOM = (
    "Memory cgroup out of memory: Killed process {pid} (python) total-vm:900kB, anon-rss:800kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:0"
)


def raised(rank: int, said: str) -> str:
    return f"""\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train.py", line {30 + rank}, in main
[rank{rank}]:     step()
[rank{rank}]: {said}
"""


def job(code: int, *words: str) -> Case:
    """words: what the ranks print. The end of a rank has the command of the last."""
    command = "['python', '-u', 'train.py', '--local_rank={rank}']"
    head = STAMP.format(second=10)
    text = f"{head} [INFO] [launch.py:152:main] WORLD INFO DICT: {{'localhost': {list(RANKS)}}}\n"
    text += f"{head} [INFO] [launch.py:158:main] nnodes=1, num_local_procs={len(RANKS)}, node_rank=0\n"
    for rank in RANKS:
        spawned = f"process {FIRST_PID + rank} spawned with command: {command.format(rank=rank)}"
        text += f"{head} [INFO] [launch.py:245:main] {spawned}\n"
    text += "".join(words)
    tail = STAMP.format(second=40)
    for rank in RANKS:
        text += f"{tail} [INFO] [launch.py:253:sigkill_handler] Killing subprocess {FIRST_PID + rank}\n"
    last = command.format(rank=RANKS[-1])
    text += f"{tail} [ERROR] [launch.py:259:sigkill_handler] {last} exits with return code = {code}\n"
    return Case(launcher_logs=[read_launcher_log(text.encode(), "job.log")])


def with_kernel(case: Case, *lines: str) -> Case:
    text = "".join(f"[  100.{number:06}] {line}\n" for number, line in enumerate(lines))
    return Case(launcher_logs=case.launcher_logs, kernel_logs=[read_kernel_log(text.encode(), path="dmesg.txt")])


def roots(diagnosis: Diagnosis) -> list[int | None]:
    return [process.rank for process in diagnosis.processes if process.role == "root"]


@pytest.mark.parametrize("rank", RANKS)
def test_whom_a_signal_ended_is_the_one_that_said_nothing(rank: int) -> None:
    diagnosis = diagnose(job(-11, *(raised(other, LOST) for other in RANKS if other != rank)))
    assert roots(diagnosis) == [rank]
    assert diagnosis.processes[0].pid == FIRST_PID + rank and diagnosis.processes[0].exit.signal == "SIGSEGV"
    assert {process.role for process in diagnosis.processes[1:]} == {"collateral"}


def test_where_several_said_nothing_none_of_them_is_accused() -> None:
    diagnosis = diagnose(job(-9, raised(0, LOST)))
    assert roots(diagnosis) == [None]
    assert [process.role for process in diagnosis.processes if process.rank is not None] == ["collateral"] * 4
    (gap,) = [gap for gap in diagnosis.gaps if gap.source == "launcher"]
    assert "which one of 4000, 4001, 4002, 4003 it was" in gap.why and gap.grant is not None


@pytest.mark.parametrize("rank", RANKS)
def test_the_kernel_names_it(rank: int) -> None:
    case = job(-9, raised((rank + 1) % 4, LOST))
    diagnosis = diagnose(with_kernel(case, OOM.format(pid=77), OOM.format(pid=FIRST_PID + rank)))
    assert roots(diagnosis) == [rank]
    assert diagnosis.verdict.cause in ("cgroup-oom", "host-oom", "ancestor-cgroup-oom")


def test_a_kernels_kill_of_nobodys_process_names_none() -> None:
    diagnosis = diagnose(with_kernel(job(-9, raised(0, LOST)), OOM.format(pid=77), OOM.format(pid=78)))
    assert roots(diagnosis) in ([None], [])
    assert diagnosis.verdict.confidence == "undecided"


@pytest.mark.parametrize("rank", RANKS)
def test_a_status_is_of_the_one_that_raised_something_of_its_own(rank: int) -> None:
    own = raised(rank, "ValueError: loss is nan")
    diagnosis = diagnose(job(1, own, *(raised(other, LOST) for other in RANKS if other != rank)))
    assert roots(diagnosis) == [rank]
    assert diagnosis.processes[0].exit.code == 1 and "ValueError" in diagnosis.verdict.summary


def test_a_status_that_nobody_is_known_to_have_left_with_is_told_of_one_of_them() -> None:
    diagnosis = diagnose(job(3))
    assert roots(diagnosis) == [None]
    assert diagnosis.processes[0].exit.code == 3 and diagnosis.verdict.cause == "exit-code"


def test_where_all_lost_a_peer_none_of_them_is_accused() -> None:
    diagnosis = diagnose(job(1, *(raised(rank, LOST) for rank in RANKS)))
    assert roots(diagnosis) == [] and diagnosis.verdict.cause == "peer-lost"
    assert len(diagnosis.processes) == len(RANKS)

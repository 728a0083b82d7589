"""Where a launcher starts a job again, told from one log; and where it may look so and is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftforensics.model.launcher import AttemptBegan, LauncherEvent, ProcessDied
from ftforensics.parsers.launcher import read_launcher_log

FOLDER = Path(__file__).parent / "fixtures"
BANNER = (
    "W1130 {at} {agent} torch/distributed/run.py:874] Setting OMP_NUM_THREADS environment variable for each process to"
    " be 1 in default, to avoid your system being overloaded\n"
)
FAILED = (
    "E1130 {at} {agent} torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1"
    " (pid: {pid}) of binary: /usr/bin/python3\n"
)
SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_{time}
  host      : {host}
  rank      : {rank} (local_rank: {local})
  exitcode  : -9 (pid: {pid})
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID {pid}
============================================================
"""


def summary(rank: int, pid: int, *, time: str = "03:48:12", host: str = "n1", local: int | None = None) -> str:
    return SUMMARY.format(time=time, host=host, rank=rank, local=rank if local is None else local, pid=pid)


def failed(pid: int, at: str, agent: int = 100) -> str:
    return FAILED.format(pid=pid, at=f"{at}.000000", agent=agent)


def banner(at: str, agent: int = 100) -> str:
    return BANNER.format(at=f"{at}.000000", agent=agent)


def begun(text: str | bytes) -> list[tuple[int, str, int | None]]:
    events = read_launcher_log(text.encode() if isinstance(text, str) else text).events
    return [(one.line.number, one.launcher, one.restart) for one in events if isinstance(one, AttemptBegan)]


def after(text: str, line: int) -> list[LauncherEvent]:
    return [one for one in read_launcher_log(text.encode()).events if one.line.number >= line]


def test_restarts_at_the_usual_level() -> None:
    """--max-restarts 2: nothing is printed but one "failed" line an attempt."""
    assert begun((FOLDER / "torchrun" / "restarts.log").read_bytes()) == [
        (3, "torchrun", 0),
        (17, "torchrun", 1),
        (40, "torchrun", 2),
    ]


def test_restarts_at_level_info() -> None:
    assert begun((FOLDER / "torchrun" / "restarts-info.log").read_bytes()) == [(4, "torchrun", 0), (56, "torchrun", 1)]


OLD = """\
INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers. Result:
  restart_count=0
  master_addr=127.0.0.1
INFO:torch.distributed.elastic.agent.server.api:[default] Starting worker group
ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: python
INFO:torch.distributed.elastic.agent.server.api:[d] Worker group FAILED. 3/3 attempts left; will restart worker group
INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers. Result:
  restart_count=1
ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 97) of binary: python
"""


def test_restarts_of_old_versions_at_level_info() -> None:
    assert begun(OLD) == [(2, "torchrun", 0), (6, "torchrun", 1)]


def test_restarts_of_old_versions_at_their_usual_level_are_not_told_apart() -> None:
    """They print no pid of the agent: two nodes in one log look the same."""
    assert begun("".join(line + "\n" for line in OLD.splitlines() if line.startswith("ERROR"))) == []


def test_the_first_launch_alone() -> None:
    assert begun(banner("03:00:00") + "step 1\n" + failed(101, "03:01:00") + summary(1, 101)) == [(1, "torchrun", 0)]


def test_no_start_without_a_word_of_one() -> None:
    for log in (FOLDER / "launcher").glob("*.log"):
        deepspeed = log.stem.startswith("deepspeed")
        assert [name for _, name, _ in begun(log.read_bytes())] == (["deepspeed"] if deepspeed else []), log.stem


def test_a_second_launch_by_its_banner() -> None:
    once = banner("03:00:00") + "step 1\n" + failed(101, "03:01:00") + summary(1, 101)
    again = banner("03:02:00", 200) + "step 1\n" + failed(201, "03:03:00", 200) + summary(1, 201)
    line = once.count("\n") + 1
    assert begun(once + again) == [(1, "torchrun", 0), (line, "torchrun", 0)]
    assert {one.pid for one in after(once + again, line) if isinstance(one, ProcessDied)} == {201}


def test_a_second_launch_without_a_banner_by_its_summary() -> None:
    """OMP_NUM_THREADS is set. The same rank cannot have two pids."""
    once = "step 1\n" + failed(101, "03:01:00") + summary(1, 101)
    again = "step 1\n" + failed(201, "03:03:00", 200) + summary(1, 201)
    line = once.count("\n") + 1
    assert begun(once + again) == [(line, "torchrun", None)]
    assert begun((once + again) * 2) == [
        (line, "torchrun", None),
        (2 * line - 1, "torchrun", None),
        (3 * line - 2, "torchrun", None),
    ]


@pytest.mark.parametrize(
    "prefix", ["", "[2024-10-28 06:14:37,244] torch.distributed.elastic.multiprocessing.api: [ERROR] "]
)
def test_a_second_launch_of_old_versions_by_its_summary(prefix: str) -> None:
    line = f"{prefix}failed (exitcode: -9) local_rank: 1 (pid: {{}}) of binary: python\n"
    once = line.format(101) + summary(1, 101)
    assert begun(once + "step 1\n" + line.format(201) + summary(1, 201)) == [(once.count("\n") + 1, "torchrun", None)]


def test_two_nodes_in_one_log_are_one_attempt() -> None:
    """Their agents print the same lines, a moment apart."""
    first = failed(101, "03:01:00", 100) + summary(1, 101, host="n1")
    second = failed(301, "03:01:01", 300) + summary(3, 301, host="n2", local=1)
    assert begun(banner("03:00:00", 100) + banner("03:00:01", 300) + first + second) == [(1, "torchrun", 0)]
    # The agent of a container is process 7 on every node.
    assert begun(failed(101, "03:01:00", 7) + failed(103, "03:01:00", 7)) == []
    assert begun(failed(101, "03:01:00", 7) + failed(99, "03:09:00", 7)) == []


def test_a_node_that_comes_late_is_no_second_launch() -> None:
    late = failed(101, "03:00:02", 100) + summary(1, 101) + banner("03:00:05", 300)
    assert begun(banner("03:00:00", 100) + late) == [(1, "torchrun", 0)]


def test_what_a_logger_quotes_is_no_start() -> None:
    quoted = "".join(f"INFO: the last run said: {line}\n" for line in OLD.splitlines())
    assert [line for line, _, _ in begun(quoted)] == [6]  # a whole line of torch's, behind a prefix that may be its own


def test_slurm_requeues() -> None:
    """The lines that follow are the teardown; the new start is where the launcher says so."""
    requeued = (
        "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-11-30T03:01:00 DUE TO JOB REQUEUE ***\n"
        "srun: error: n1: task 0: Terminated\n"
    )
    once = banner("03:00:00") + requeued
    assert begun(once + banner("03:04:00", 200)) == [(1, "torchrun", 0), (4, "torchrun", 0)]
    assert begun(once) == [(1, "torchrun", 0)]
    plain = banner("03:00:00") + "step 1\n" + banner("03:04:00", 200)
    assert begun(plain) == [(1, "torchrun", 0)]  # no end was seen: it may be another node


DEEPSPEED = "[2026-11-30 03:00:0{n},000] [INFO] [launch.py:158:main] nnodes={nodes}, num_local_procs=2, node_rank={n}\n"


def test_deepspeed() -> None:
    node = DEEPSPEED.format(nodes=1, n=0)
    assert begun(node + "step 1\n") == [(1, "deepspeed", None)]
    assert begun(node + "step 1\n" + node) == [(1, "deepspeed", None), (3, "deepspeed", None)]
    two = f"worker-0: {DEEPSPEED.format(nodes=2, n=0)}worker-1: {DEEPSPEED.format(nodes=2, n=1)}"
    assert begun(two) == [(1, "deepspeed", None)]
    assert begun(two * 2) == [(1, "deepspeed", None), (3, "deepspeed", None)]


def test_accelerate() -> None:
    words = "The following values were not passed to `accelerate launch` and had defaults used instead:\n"
    died = "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.\n"
    assert begun(words + words + died) == [(1, "accelerate", None)]
    assert begun(words + died + words) == [(1, "accelerate", None), (3, "accelerate", None)]


def test_starts_survive_when_events_are_left_out() -> None:
    text = banner("03:00:00") + "".join(
        f"ERROR: failed (exitcode: 1) local_rank: 0 (pid: {pid}) of binary: p\n" for pid in range(1, 20_000)
    )
    again = read_launcher_log((text + banner("05:00:00", 200) + "x\n" + text).encode())
    assert again.cut
    assert len([one for one in again.events if isinstance(one, AttemptBegan)]) == 2


def test_a_summary_cut_anywhere_starts_nothing() -> None:
    text = failed(101, "03:01:00") + summary(1, 101)
    for at in range(0, len(text), 7):
        assert begun(text[:at]) == []
        assert begun(text[at:]) == []

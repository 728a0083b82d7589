"""Two nodes and two runs stay apart, and the cost of many ranks grows with their number, not with its square."""

from __future__ import annotations

import sys
from typing import Any

from ftforensics.diagnose.deaths import build_deaths
from ftforensics.model.case import Case, CaseRing
from ftforensics.model.kernel import KernelLog, LogLine, OomKill
from ftforensics.model.launcher import LauncherLog, ProcessDied, SignalledBy, TextLine
from ftforensics.model.moment import Moment
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.model.ring import ClockPair, Ring, RingProcess, SlowSample
from ftforensics.model.run import Died, RunEvidence, Started

INITIAL = 0xEFFFFFFC  # include/linux/proc_ns.h, PROC_PID_INIT_INO: there the kernel's numbers are the process's own
BOOT = "11111111-0000-4000-8000-000000000000"


def log(path: str, *events: Any) -> LauncherLog:
    return LauncherLog(path, ["torchrun"], 99, list(events))


def failed(text: str, pid: int, local_rank: int, **changes: Any) -> ProcessDied:
    how = {"signal": 9, **changes}
    return ProcessDied(TextLine(text, 5), "torchrun", pid, local_rank=local_rank, **how)


def ring(pid: int, ppid: int, rank: int | None = None) -> CaseRing:
    at = 100.0
    reading = Reading(Moment(monotonic=at, boot_id=BOOT), "ring", groups=[GroupReading("/job", 2, oom_kill=1)])
    process = RingProcess(
        pid, pid * 10, ppid, [pid], host="gpu-07", boot_id=BOOT, rank=rank, cgroup=["0::/job"], pid_namespace=INITIAL
    )
    return CaseRing(Ring(process, [ClockPair(1e6, 0.0, 0.0)], last=at, slow=[SlowSample(at, reading)]), f"{pid}.ring")


def run(name: str, pid: int, *died: Died) -> RunEvidence:
    clocks = ClockPair(1e6, 0.0, 0.0)
    started = Started(
        "ftforensics.evidence/1", "0", clocks, BOOT, "gpu-07", pid=pid, child=pid + 1, at=0.0, traced=True
    )
    return RunEvidence(name, started, list(died))


def test_two_nodes_give_out_the_same_numbers() -> None:
    first = log("n0.log", failed("on the first", 100, 0))
    second = log("n1.log", failed("on the second", 100, 0, signal=15))
    deaths = build_deaths(Case(launcher_logs=[first, second]), [])
    assert [(death.pid, death.signal) for death in deaths] == [(100, 9), (100, 15)]


def test_what_the_summary_says_holds_for_the_line_before_it() -> None:
    def node(path: str, rank: int) -> LauncherLog:
        return log(path, failed(f"{path} saw", 100, 0), failed(f"{path} sums up", 100, 0, rank=rank, host=path))

    deaths = build_deaths(Case(launcher_logs=[node("alpha", 0), node("beta", 8)]), [])
    assert [(death.rank, death.host) for death in deaths] == [(0, "alpha"), (8, "beta")]


def test_one_log_that_is_given_twice_tells_of_one_end() -> None:
    again = [log("job.log", failed("E1129 failed", 100, 0)), log("copy.log", failed("E1129 failed", 100, 0))]
    assert len(build_deaths(Case(launcher_logs=again), [])) == 1


def test_of_two_runs_at_once_each_has_its_own() -> None:
    ours = Died(101.0, 20, 9, 9, ppid=9, start_ticks=200, nspid=[20])
    runs = [run("a/evidence.jsonl", 8, ours), run("b/evidence.jsonl", 18)]
    case = Case(rings=[ring(20, 9), ring(30, 19), ring(40, 39)], runs=runs)
    deaths = {death.pid: death for death in build_deaths(case, [])}
    assert [deaths[pid].run for pid in (20, 30, 40)] == ["a/evidence.jsonl", "b/evidence.jsonl", None]
    assert not deaths[40].traced and deaths[30].traced


def many(count: int) -> Case:
    rings = [ring(1000 + rank, 9, rank) for rank in range(count)]
    events: list[Any] = []
    for rank in range(count):
        line = TextLine(f"rank {rank}", rank + 1)
        events.append(SignalledBy(line, "torchrun", 1000 + rank, 15))
        events.append(ProcessDied(line, "torchrun", 1000 + rank, rank, rank % 8, signal=9 if rank % 2 else 15))
        events.append(ProcessDied(TextLine("", rank + count), "torchrun", None, rank, signal=9 if rank % 2 else 15))
    kills = [
        OomKill(LogLine("Killed", at, moment=Moment(monotonic=100.5, boot_id=BOOT)), 1001 + at, "python")
        for at in range(count)
    ]
    return Case(
        rings=rings, launcher_logs=[log("job.log", *events)], kernel_logs=[KernelLog("file", events=list(kills))]
    )


def calls(case: Case) -> int:
    """Of functions, ours and the interpreter's: a measure that a busy machine does not change."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        build_deaths(case, [])
    finally:
        sys.setprofile(before)
    return counted


def test_four_times_the_ranks_cost_about_four_times() -> None:
    small, large = many(300), many(1200)
    build_deaths(small, [])  # what is made once
    assert calls(large) < 5 * calls(small)  # a quadratic step would make it sixteen

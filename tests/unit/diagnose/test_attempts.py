"""Several attempts of one job in one input: each is judged alone, the last one in full."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ftforensics.diagnose import diagnose
from ftforensics.diagnose.attempts import MOST_ATTEMPTS, split
from ftforensics.model.case import Case, CaseException, CaseRing
from ftforensics.model.crash import Job, Process, Time
from ftforensics.model.exception import ExceptionRecord, Raised
from ftforensics.model.kernel import Fault, KernelLog, LogLine
from ftforensics.model.launcher import AttemptBegan, LauncherLog, ProcessDied, SignalledBy, TextLine
from ftforensics.model.ring import ClockPair, FastSample, Ring, RingProcess
from ftforensics.model.run import Died, Ended, RunEvidence, Started

BOOT = "11111111-0000-4000-8000-000000000000"
EPOCH = 1_000_000.0  # realtime minus monotonic


def ring(pid: int, began: float, last: float, rank: int | None = 0, folder: str = "run", **process: Any) -> CaseRing:
    who = RingProcess(pid, start_ticks=pid * 100, ppid=9, boot_id=BOOT, host="gpu-07", rank=rank, comm="python")
    clocks = [ClockPair(EPOCH + began, began, began)]
    samples = [FastSample(last, 1 << 20)]
    who = msgspec.structs.replace(who, **process)
    return CaseRing(Ring(who, clocks, installed=began, last=last, fast=samples), f"{folder}/{pid}.ring")


def raised(pid: int, at: float, rank: int = 0, attempt: int | None = None, folder: str = "run") -> CaseException:
    record = ExceptionRecord(
        time=Time(EPOCH + at, at, at, installed=at - 5, boot_id=BOOT),
        process=Process(pid=pid, ppid=9, start_ticks=pid * 100),
        job=Job(host="gpu-07", rank=rank, world_size=2),
        hook="sys.excepthook",
        exceptions=[Raised("ValueError", "no")],
        peer_lost=False,
        attempt=attempt,
    )
    return CaseException(record, f"{folder}/{pid}.exception.json")


def run(began: float, ended: float, *died: Died, code: int = 1, path: str = "run/evidence.jsonl") -> RunEvidence:
    clocks = ClockPair(EPOCH + began, began, began)
    started = Started(
        "ftforensics.evidence/1", "0", clocks, BOOT, "gpu-07", pid=1, child=9, argv=["torchrun"], at=began
    )
    over = ClockPair(EPOCH + ended, ended, ended)
    return RunEvidence(path, started, list(died), ended=Ended(ended, over, status=code << 8, code=code))


def died(pid: int, at: float, rank: int, attempt: int | None, **changes: Any) -> Died:
    base = Died(at, pid, status=9, signal=9, ppid=9, start_ticks=pid * 100, comm="python", nspid=[pid], rank=rank)
    return msgspec.structs.replace(base, attempt=attempt, **changes)


def line(number: int, text: str = "said") -> TextLine:
    return TextLine(text, number, path="job.log")


def pids(case: Case) -> list[int]:
    return sorted(one.ring.process.pid for one in case.rings)


def test_ranks_that_live_together_are_one_attempt_wherever_their_files_lie() -> None:
    case = Case(rings=[ring(pid, 10.0 + pid, 90.0, rank=pid, folder=f"node{pid}") for pid in range(10, 14)])
    assert [pids(one.case) for one in split(case)] == [[10, 11, 12, 13]]


def test_the_same_ranks_again_are_the_next_attempt() -> None:
    rings = [ring(10 + rank, 10.0, 50.0, rank) for rank in (0, 1)] + [
        ring(20 + rank, 60.0, 90.0, rank) for rank in (0, 1)
    ]
    attempts = split(Case(rings=rings))
    assert [pids(one.case) for one in attempts] == [[10, 11], [20, 21]]
    assert [one.name for one in attempts] == ["attempt 0", "attempt 1"]
    assert attempts[0].ended == EPOCH + 50.0 and attempts[1].began == EPOCH + 60.0


def test_a_rank_that_comes_late_is_of_the_same_attempt() -> None:
    """Another place in the job, though it began when the first one was over."""
    assert len(split(Case(rings=[ring(10, 10.0, 20.0, 0), ring(11, 30.0, 40.0, 1)]))) == 1


def test_folders_give_attempts_their_names_and_a_way_to_look_at_them() -> None:
    rings = [ring(10, 10.0, 50.0, folder="runs/4411"), ring(20, 60.0, 90.0, folder="runs/4412")]
    attempts = split(Case(rings=rings))
    assert [(one.name, one.path) for one in attempts] == [("4411", "runs/4411"), ("4412", "runs/4412")]


def test_the_launchers_count_decides_where_times_do_not() -> None:
    rings = [
        ring(10, 10.0, 50.0, attempt=0, world_size=2),
        ring(11, 10.0, 90.0, rank=1, attempt=0, world_size=2),  # lingered: the recorder's clock says it lived on
        ring(20, 60.0, 95.0, attempt=1, world_size=2),
    ]
    assert [pids(one.case) for one in split(Case(rings=rings))] == [[10, 11], [20]]


def test_one_run_whose_launcher_restarted_is_cut_at_the_restart() -> None:
    evidence = run(
        10.0, 99.0, died(10, 50.0, 0, 0), died(11, 50.2, 1, 0), died(20, 90.0, 0, 1), died(21, 90.5, 1, 1),
        Died(98.0, 9, status=256, code=1, comm="torchrun", direct=True),
    )  # fmt: skip
    rings = [ring(pid, 12.0 if pid < 20 else 55.0, 49.0 if pid < 20 else 89.0, pid % 10) for pid in (10, 11, 20, 21)]
    first, last = split(Case(rings=rings, runs=[evidence]))
    assert [one.pid for one in first.case.runs[0].died] == [10, 11] and first.case.runs[0].ended is None
    assert [one.pid for one in last.case.runs[0].died] == [20, 21, 9] and last.case.runs[0].ended is not None
    assert pids(first.case) == [10, 11] and pids(last.case) == [20, 21]


def test_exception_records_and_a_log_follow_their_processes() -> None:
    log = LauncherLog(
        "job.log",
        ["torchrun"],
        40,
        [
            ProcessDied(line(3, "failed (exitcode: 1)"), "torchrun", pid=10, local_rank=0, code=1),
            SignalledBy(line(4, "closing"), "torchrun", 11, 15),
            ProcessDied(line(30, "failed (exitcode: 1)"), "torchrun", pid=20, local_rank=0, code=1),
        ],
    )
    case = Case(exceptions=[raised(10, 50.0, attempt=0), raised(20, 90.0, attempt=1)], launcher_logs=[log])
    first, last = split(case)
    assert [event.line.number for event in first.case.launcher_logs[0].events] == [3, 4]
    assert [event.line.number for event in last.case.launcher_logs[0].events] == [30]


def test_a_log_alone_is_cut_where_its_launcher_begins_again() -> None:
    events = [
        AttemptBegan(line(1), "torchrun", 0),
        ProcessDied(line(10), "torchrun", pid=10, rank=0, signal=9),
        AttemptBegan(line(20), "torchrun", 1),
        ProcessDied(line(30), "torchrun", pid=20, rank=1, signal=11),
    ]
    diagnosis = diagnose(Case(launcher_logs=[LauncherLog("job.log", ["torchrun"], 40, events)]))
    assert [process.pid for process in diagnosis.processes] == [20]
    assert diagnosis.verdict.cause == "native-fault"
    assert [(one.name, one.cause) for one in diagnosis.attempts] == [("job.log lines 1-10", "killed-unknown")]


def test_a_job_that_began_again_and_says_nothing_more_has_not_failed_again() -> None:
    events = [
        ProcessDied(line(10), "torchrun", pid=10, rank=0, signal=9),
        AttemptBegan(line(20), "torchrun", 1),
    ]
    diagnosis = diagnose(Case(launcher_logs=[LauncherLog("job.log", ["torchrun"], 400, events)]))
    assert diagnosis.verdict.outcome == "unknown" and not diagnosis.processes
    assert [one.cause for one in diagnosis.attempts] == ["killed-unknown"]


def test_whom_an_earlier_attempt_told_of_is_not_of_the_one_after_it() -> None:
    """The kernel's log has the first attempt's fault, and one of somebody else."""
    events = [ProcessDied(line(10), "torchrun", pid=10, rank=0, signal=11), AttemptBegan(line(20), "torchrun", 1)]
    faults = [Fault(LogLine(f"python[{pid}]: segfault at 0", pid), pid, "python", "segfault") for pid in (10, 77)]
    log = LauncherLog("job.log", ["torchrun"], 400, events)
    diagnosis = diagnose(Case(launcher_logs=[log], kernel_logs=[KernelLog("file", "k.log", events=[*faults])]))
    assert [(one.pid, one.role) for one in diagnosis.processes] == [(77, "unknown")]
    assert diagnosis.verdict.cause is None and "started again" in diagnosis.verdict.summary
    alone = diagnose(Case(launcher_logs=[log], kernel_logs=[KernelLog("file", "k.log", events=faults[:1])]))
    assert not alone.processes and [one.cause for one in alone.attempts] == ["native-fault"]


def torchruns(*events: ProcessDied, lines: int) -> LauncherLog:
    return LauncherLog("job.log", ["torchrun"], lines, list(events))


def test_output_after_torchruns_failure_and_no_summary_is_the_next_attempts() -> None:
    failed = ProcessDied(line(19, "failed (exitcode: -11)"), "torchrun", pid=10, local_rank=1, signal=11, first=True)
    diagnosis = diagnose(Case(launcher_logs=[torchruns(failed, lines=80)]))
    assert diagnosis.verdict.outcome == "unknown" and not diagnosis.processes
    assert [one.cause for one in diagnosis.attempts] == ["native-fault"]


@pytest.mark.parametrize("lines", [19, 25])
def test_a_log_that_was_cut_behind_the_failure_is_about_it(lines: int) -> None:
    failed = ProcessDied(line(19, "failed (exitcode: -11)"), "torchrun", pid=10, local_rank=1, signal=11, first=True)
    diagnosis = diagnose(Case(launcher_logs=[torchruns(failed, lines=lines)]))
    assert diagnosis.verdict.cause == "native-fault" and not diagnosis.attempts


def test_with_its_summary_the_failure_was_the_last() -> None:
    failed = ProcessDied(line(19, "failed (exitcode: -11)"), "torchrun", pid=10, local_rank=1, signal=11, first=True)
    told = ProcessDied(
        line(50, "time: 2026-11-30_03:58:17  rank: 1"), "torchrun", pid=10, rank=1, signal=11, first=True
    )
    assert diagnose(Case(launcher_logs=[torchruns(failed, told, lines=90)])).verdict.cause == "native-fault"


def test_the_last_attempt_that_ended_well_is_the_verdict() -> None:
    evidence = [
        run(10.0, 50.0, died(10, 50.0, 0, None), path="a/evidence.jsonl"),
        run(60.0, 99.0, code=0, path="b/evidence.jsonl"),
    ]
    diagnosis = diagnose(Case(runs=evidence))
    assert diagnosis.verdict.outcome == "succeeded"
    assert [(one.name, one.outcome, one.root) for one in diagnosis.attempts] == [("a", "failed", "rank 0 (pid 10)")]


def test_two_runs_at_the_same_time_are_one_attempt() -> None:
    """One `run` a rank, as srun starts them."""
    evidence = [run(10.0, 50.0, path="a/evidence.jsonl"), run(10.5, 51.0, path="b/evidence.jsonl")]
    assert len(split(Case(runs=evidence))) == 1


def test_a_process_that_is_asked_for_is_looked_for_everywhere() -> None:
    rings = [ring(10, 10.0, 50.0), ring(20, 60.0, 90.0)]
    assert [pids(one.case) for one in split(Case(rings=rings, given_pid=10))] == [[10, 20]]


def test_a_job_that_restarts_for_ever_is_bounded() -> None:
    count = MOST_ATTEMPTS + 30
    rings = [ring(1000 + number, 10.0 * number, 10.0 * number + 5) for number in range(count)]
    diagnosis = diagnose(Case(rings=rings))
    assert len(diagnosis.attempts) == MOST_ATTEMPTS
    assert any("29 still earlier attempts" in gap.why for gap in diagnosis.gaps)


@pytest.mark.parametrize("worker", [{"worker_of": 10}, {"fork_of": 10}])
def test_workers_that_come_and_go_make_no_attempts(worker: dict[str, int]) -> None:
    rings = [ring(10, 10.0, 90.0, None)]
    rings += [ring(100 + number, 20.0 + number, 20.5 + number, None, **worker) for number in range(5)]
    assert len(split(Case(rings=rings))) == 1


def test_two_jobs_at_the_same_time_are_named() -> None:
    one = run(10.0, 50.0, died(11, 40.0, 0, None), path="a/evidence.jsonl")
    two = run(10.5, 51.0, died(21, 41.0, 0, None), path="b/evidence.jsonl")
    beside = run(10.5, 51.0, died(22, 41.0, 1, None), path="b/evidence.jsonl")
    said = [gap.why for gap in diagnose(Case(runs=[one, two])).gaps]
    assert any("a/evidence.jsonl and b/evidence.jsonl each saw rank 0 end" in why for why in said)
    assert not any("two jobs" in gap.why for gap in diagnose(Case(runs=[one, beside])).gaps)


def test_the_traces_of_one_process_are_of_one_attempt_though_its_wall_clock_was_set() -> None:
    """The ring's pair of clocks was read before that, the exception's time after."""
    record = raised(10, 50.0)
    assert record.record.time is not None
    time = msgspec.structs.replace(record.record.time, realtime=EPOCH + 7250.0)
    later = msgspec.structs.replace(record, record=msgspec.structs.replace(record.record, time=time))
    assert len(split(Case(rings=[ring(10, 10.0, 50.0)], exceptions=[later]))) == 1


def test_a_run_inside_a_run_is_the_same_job() -> None:
    outer = run(10.0, 50.0, died(11, 40.0, 0, None), path="run/evidence.jsonl")
    inner = run(10.5, 49.0, died(11, 40.0, 0, None), path="run/gpu-07-5.evidence.jsonl")
    assert not any("two jobs" in gap.why for gap in diagnose(Case(runs=[outer, inner])).gaps)


def test_an_attempt_lasts_as_long_as_its_ranks_and_not_as_their_launcher() -> None:
    agent = ring(9, 10.0, 99.0, None)
    ranks = [ring(10, 12.0, 49.0, attempt=0, world_size=1), ring(20, 55.0, 98.0, attempt=1, world_size=1)]
    first, last = split(Case(rings=[agent, *ranks]))
    assert (first.began, first.ended) == (EPOCH + 12.0, EPOCH + 49.0)
    assert (last.began, last.ended) == (EPOCH + 55.0, EPOCH + 98.0)

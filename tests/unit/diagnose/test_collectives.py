"""Who had not come to the collective in which the others waited."""

from __future__ import annotations

import msgspec

from ftforensics.diagnose import diagnose
from ftforensics.diagnose.collectives import with_behind
from ftforensics.model.case import Case
from ftforensics.model.death import Death
from ftforensics.model.launcher import LauncherLog, ProcessDied, SignalledBy, StackText, TextLine

GROUP = "0(default_pg)"


def line(number: int) -> TextLine:
    return TextLine(f"line {number}", number, path="job.log")


def progress(rank: int, sequence: int, enqueued: int, group: str = GROUP) -> StackText:
    return StackText(
        line(rank), "nccl-progress", symbol=group, rank=rank, sequence=sequence, enqueued=enqueued, form="line"
    )


def behind(events: list[StackText], size: int = 4) -> dict[int | None, list[int]]:
    deaths = [Death(pid=100 + rank, rank=rank, world_size=size, signal=6) for rank in range(size)]
    found = with_behind(deaths, [LauncherLog("job.log", events=list(events))])
    return {death.rank: [one.rank for one in death.behind] for death in found if death.behind}


def test_a_rank_that_had_enqueued_less_was_waited_for() -> None:
    events = [progress(rank, 5, 6) for rank in (0, 1, 3)] + [progress(2, 4, 4)]
    assert behind(events) == {0: [2], 1: [2], 3: [2]}


def test_the_only_silent_rank_was_waited_for() -> None:
    assert behind([progress(rank, 5, 6) for rank in (0, 1, 3)]) == {0: [2], 1: [2], 3: [2]}


def test_one_voice_among_many_accuses_nobody() -> None:
    assert behind([progress(0, 5, 6)]) == {}


def test_members_of_a_smaller_group_are_not_known() -> None:
    assert behind([progress(0, 5, 6, "3"), progress(1, 5, 6, "3"), progress(2, 5, 6, "3")]) == {}


def test_numbers_of_two_groups_are_not_compared() -> None:
    assert behind([progress(0, 50, 60, "1"), progress(1, 5, 6, "2")]) == {}


def test_those_who_waited_are_victims_and_the_verdict_names_whom_for() -> None:
    watchdog = [
        StackText(
            line(10 + rank), "nccl-watchdog", symbol="ALLREDUCE", seconds=600.0, rank=rank, form="line", sequence=5
        )
        for rank in (0, 1)
    ]
    ends = [ProcessDied(line(30 + rank), "torchrun", pid=100 + rank, rank=rank, signal=6) for rank in (0, 1)]
    stuck = [
        SignalledBy(line(25), "torchrun", 102, 15),
        ProcessDied(line(32), "torchrun", pid=102, rank=2, signal=15),
    ]
    events = [*(progress(rank, 5, 6) for rank in (0, 1)), progress(2, 4, 4), *watchdog, *ends, *stuck]
    diagnosis = diagnose(Case(launcher_logs=[LauncherLog("job.log", ["torchrun"], 40, events)]))
    assert diagnosis.verdict.cause == "nccl-watchdog-abort"
    assert "rank 2 did not come to collective 5, allreduce within 600 s" in diagnosis.verdict.summary
    assert {process.rank: process.role for process in diagnosis.processes} == {
        0: "victim",
        1: "victim",
        2: "collateral",
    }
    assert all(process.reason is not None for process in diagnosis.processes)


def test_a_rank_that_failed_before_is_still_the_root() -> None:
    events = [
        *(progress(rank, 5, 6) for rank in (0, 1)),
        *(StackText(line(10 + rank), "nccl-watchdog", seconds=600.0, rank=rank, form="line") for rank in (0, 1)),
        ProcessDied(line(29), "torchrun", pid=102, rank=2, signal=11, first=True),
        *(ProcessDied(line(30 + rank), "torchrun", pid=100 + rank, rank=rank, signal=6) for rank in (0, 1)),
    ]
    diagnosis = diagnose(Case(launcher_logs=[LauncherLog("job.log", ["torchrun"], 40, events)]))
    roles = {process.rank: process.role for process in diagnosis.processes}
    assert roles == {2: "root", 0: "victim", 1: "victim"} and diagnosis.verdict.cause == "native-fault"
    assert msgspec.json.encode(diagnosis.processes)

"""Who died because of it, those that ended alike together."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.diagnosis import Diagnosis, Exit, LastSecond, ProcessReport
from ftforensics.report.fates import consequences, others, ranges
from ftforensics.report.phrases import ending, who_in_short

Make = Callable[..., Diagnosis]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0, 1"),
        ([0, 1, 2, 4, 5, 6, 7], "0-2, 4-7"),
        ([0, 1, 2, 3, 9], "0-3, 9"),
        (list(range(1000)), "0-999"),
    ],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def process(**changed: object) -> ProcessReport:
    base = ProcessReport("gpu-07", 50, None, None, Exit(signal="SIGTERM"), "collateral", time=101.9)
    return msgspec.structs.replace(base, **changed)


def told(make_killed: Make, *rest: ProcessReport) -> list[str]:
    first = process(exit=Exit(signal="SIGKILL"), role="root", time=100.0)
    return [f"{fate.who}: {fate.how}" for fate in consequences(make_killed(processes=[first, *rest]))]


def test_equal_fates_are_one_line(make_killed: Make) -> None:
    assert [f"{fate.who}: {fate.how}" for fate in consequences(make_killed())] == [
        "ranks 0-2, 4-7: ended by SIGTERM from 17987 (torchrun), 1.9 s later",
        "4 workers of rank 0: killed by SIGKILL, 2 s to 5 s later",
    ]


def test_another_end_another_sender_or_another_host_is_another_line(make_killed: Make) -> None:
    rest = [process(rank=rank) for rank in range(3)]
    assert told(
        make_killed,
        *rest,
        process(rank=3, exit=Exit(signal="SIGKILL")),
        process(rank=4, by="9 (srun)"),
        process(rank=8, host="gpu-08"),
        process(rank=9, host="gpu-08"),
    ) == [
        "ranks 0-2: ended by SIGTERM, 1.9 s later",
        "rank 3 (pid 50) on gpu-07: killed by SIGKILL, 1.9 s later",
        "rank 4 (pid 50) on gpu-07: ended by SIGTERM from 9 (srun), 1.9 s later",
        "ranks 8, 9 on gpu-08: ended by SIGTERM, 1.9 s later",
    ]


def test_without_ranks_pids_are_named_and_bounded(make_killed: Make) -> None:
    many = [process(pid=pid) for pid in range(10, 20)]
    assert told(make_killed, *many) == ["pids 10, 11, 12, 13, 14, 15 and 4 more: ended by SIGTERM, 1.9 s later"]


def test_a_worker_whose_rank_is_not_known_is_still_a_worker(make_killed: Make) -> None:
    assert told(make_killed, process(worker=True)) == ["a worker (pid 50) on gpu-07: ended by SIGTERM, 1.9 s later"]
    two = [process(pid=pid, worker=True, rank=3) for pid in (50, 51)]
    assert told(make_killed, *two, process(rank=3)) == [
        "2 workers of rank 3: ended by SIGTERM, 1.9 s later",
        "rank 3 (pid 50) on gpu-07: ended by SIGTERM, 1.9 s later",
    ]
    assert who_in_short(two[0]) == "a worker (pid 50) of rank 3 on gpu-07"


def test_times(make_killed: Make) -> None:
    assert told(make_killed, process(time=None)) == ["pid 50 on gpu-07: ended by SIGTERM"]
    assert told(make_killed, process(time=99.5)) == ["pid 50 on gpu-07: ended by SIGTERM, 500 ms earlier"]
    both = told(make_killed, process(time=99.5), process(pid=51, time=102.0))
    assert both == ["pids 50, 51: ended by SIGTERM, 500 ms before to 2 s after"]


def test_own_failures_are_not_consequences(make_killed: Make) -> None:
    first = process(role="root")
    diagnosis = make_killed(processes=[first, process(pid=2, role="unknown"), process(pid=3)])
    assert [one.pid for one in others(diagnosis)] == [2]
    assert [fate.members[0].pid for fate in consequences(diagnosis)] == [3]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"exit": Exit(signal="SIGKILL")}, "killed by SIGKILL"),
        ({"exit": Exit(signal="SIGSEGV")}, "died of SIGSEGV"),
        ({"exit": Exit(signal="SIGABRT")}, "died of SIGABRT"),
        ({"exit": Exit(signal="SIGTERM")}, "ended by SIGTERM"),
        ({"exit": Exit(signal="SIGXCPU")}, "ended by SIGXCPU"),
        ({"exit": Exit(code=3)}, "exited with status 3"),
        ({"exit": Exit(), "ring": "x.ring"}, "ended unseen"),
        ({"exit": Exit(), "ring": "x.ring", "alive": True}, "still running"),
        (
            {"exit": Exit(), "ring": "x.ring", "last_second": LastSecond(end="exit")},
            "exited, with a status that nobody saw",
        ),
        ({"exit": Exit()}, "ended"),
    ],
)
def test_how_a_process_ended(changed: dict[str, object], text: str) -> None:
    assert ending(process(**changed)) == text

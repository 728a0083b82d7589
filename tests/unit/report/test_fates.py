"""The rank table: those that ended alike together, the first failure first, never endless."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.diagnosis import Diagnosis, Exit, LastSecond, ProcessReport
from ftforensics.model.exception import Raised
from ftforensics.report.fates import ranges, table
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


def test_too_many_runs_are_counted() -> None:
    assert ranges(range(0, 100, 2), most=4) == "0, 2, 4, ..., 98 (50 in all)"
    assert ranges([*range(5), 7, 8, *range(20, 30)], most=2) == "0-4, ..., 20-29 (17 in all)"


def process(**changed: object) -> ProcessReport:
    base = ProcessReport("gpu-07", 50, None, None, Exit(signal="SIGTERM"), "collateral", time=101.9)
    return msgspec.structs.replace(base, **changed)


ROOT = process(exit=Exit(signal="SIGKILL"), role="root", time=100.0, pid=7)


def told(make_killed: Make, *rest: ProcessReport, **changed: object) -> list[str]:
    """The lines below the root's."""
    made = table(make_killed(processes=[ROOT, *rest], **changed), 20)
    assert made is not None
    assert (made.fates[0].role, made.fates[0].how) == ("root", "killed by SIGKILL")
    return [f"{'  ' if fate.below else ''}{fate.role}: {fate.who}: {fate.how}" for fate in made.fates[1:]]


def test_equal_fates_are_one_line(make_killed: Make) -> None:
    made = table(make_killed(), 8)
    assert made is not None
    assert (made.title, made.of, made.left_out) == ("Ranks", "8 on gpu-07", 0)
    assert [(fate.role, f"{fate.who}: {fate.how}", fate.below) for fate in made.fates] == [
        ("root", "rank 3 (pid 18033): killed by SIGKILL", False),
        ("collateral", "ranks 0-2, 4-7: ended by SIGTERM from 17987 (torchrun), 1.9 s later", False),
        ("collateral", "4 workers of rank 0: killed by SIGKILL, 2 s to 5 s later", True),
    ]


def test_another_end_another_sender_or_another_host_is_another_line(make_killed: Make) -> None:
    assert told(
        make_killed,
        *[process(rank=rank) for rank in range(3)],
        process(rank=3, exit=Exit(signal="SIGKILL")),
        process(rank=4, by="9 (srun)"),
        process(rank=5, role="unknown"),
        process(rank=8, host="gpu-08"),
        process(rank=9, host="gpu-08"),
    ) == [
        "unknown: rank 5 (pid 50) on gpu-07: ended by SIGTERM, 1.9 s later",
        "collateral: ranks 0-2 on gpu-07: ended by SIGTERM, 1.9 s later",
        "collateral: rank 3 (pid 50) on gpu-07: killed by SIGKILL, 1.9 s later",
        "collateral: rank 4 (pid 50) on gpu-07: ended by SIGTERM from 9 (srun), 1.9 s later",
        "collateral: ranks 8, 9 on gpu-08: ended by SIGTERM, 1.9 s later",
    ]


def test_who_exits_is_not_sent_a_signal(make_killed: Make) -> None:
    rest = [process(rank=1, exit=Exit(code=1), by="mp.spawn"), process(rank=2, exit=Exit(), by="mp.spawn")]
    assert told(make_killed, *rest) == [
        "collateral: rank 1 (pid 50): exited with status 1, ended by mp.spawn, 1.9 s later",
        "collateral: rank 2 (pid 50): ended by mp.spawn, 1.9 s later",
    ]


def test_an_exception_is_named(make_killed: Make) -> None:
    rest = [process(rank=rank, exit=Exit(code=1), raised=[Raised("RuntimeError", f"{rank}")]) for rank in (0, 1)]
    assert told(make_killed, *rest) == ["collateral: ranks 0, 1: raised RuntimeError, 1.9 s later"]


def test_without_ranks_pids_are_named_and_bounded(make_killed: Make) -> None:
    many = [process(pid=pid) for pid in range(10, 20)]
    assert told(make_killed, *many) == [
        "collateral: pids 10, 11, 12, 13, 14, 15 and 4 more: ended by SIGTERM, 1.9 s later"
    ]


def test_workers_stand_below_their_rank(make_killed: Make) -> None:
    assert told(make_killed, process(worker=True)) == ["collateral: a worker (pid 50): ended by SIGTERM, 1.9 s later"]
    two = [process(pid=pid, worker=True, rank=3) for pid in (50, 51)]
    assert told(make_killed, *two, process(rank=3), process(rank=4, by="9 (x)")) == [
        "collateral: rank 3 (pid 50): ended by SIGTERM, 1.9 s later",
        "  collateral: 2 workers of rank 3: ended by SIGTERM, 1.9 s later",
        "collateral: rank 4 (pid 50): ended by SIGTERM from 9 (x), 1.9 s later",
    ]
    assert who_in_short(two[0]) == "a worker (pid 50) of rank 3 on gpu-07"


def test_a_worker_that_is_the_root_stands_above_its_rank(make_killed: Make) -> None:
    worker = process(pid=9, rank=3, worker_of=50, exit=Exit(signal="SIGKILL"), role="root", time=100.0)
    made = table(make_killed(processes=[worker, process(rank=3, exit=Exit(code=1))]), 8)
    assert made is not None
    assert [(fate.who, fate.below) for fate in made.fates] == [
        ("a worker (pid 9) of rank 3, pid 50", False),
        ("rank 3 (pid 50)", False),
    ]


def test_ranks_of_which_nothing_is_known(make_killed: Make) -> None:
    missing = {"missing": [15, 9, 12, 13, 14], "missing_on": ["node 1 (10.0.0.2)"], "world_size": 16}
    assert told(make_killed, process(rank=0), **missing) == [
        "missing: ranks 9, 12-15: nothing here is known of them; ran on node 1 (10.0.0.2)"
        if number == 1
        else "collateral: rank 0 (pid 50): ended by SIGTERM, 1.9 s later"
        for number in (0, 1)
    ]
    alone = table(make_killed(processes=[ROOT], missing=[1]), 8)
    assert alone is not None and alone.fates[1].how == "nothing here is known of it"
    left_nothing = process(rank=4, pid=None, exit=Exit(), role="unknown", time=None)
    assert told(make_killed, left_nothing) == ["unknown: rank 4: nothing here is known of it"]


def test_where_nobody_here_failed_first_the_missing_stand_first(make_peer_lost: Make) -> None:
    made = table(make_peer_lost(), 8)
    assert made is not None
    assert (made.of, [fate.role for fate in made.fates]) == ("2 of 4 on gpu-08", ["missing", "collateral"])


def test_without_a_root_the_one_that_the_report_is_about_stands_first(make_killed: Make) -> None:
    processes = [process(rank=rank, role="unknown", time=100.0 + rank) for rank in range(4)]
    made = table(make_killed(processes=[processes[2], processes[0], processes[1], processes[3]]), 8)
    assert made is not None
    assert [f"{fate.role} {fate.who}: {fate.how}" for fate in made.fates] == [
        "unknown rank 2 (pid 50): ended by SIGTERM",
        "unknown ranks 0, 1, 3: ended by SIGTERM, 2 s before to 1 s after",
    ]


def test_one_process_alone_has_no_table(make_killed: Make) -> None:
    assert table(make_killed(processes=[ROOT]), 8) is None


def test_times(make_killed: Make) -> None:
    assert told(make_killed, process(time=None)) == ["collateral: pid 50: ended by SIGTERM"]
    assert told(make_killed, process(time=99.5)) == ["collateral: pid 50: ended by SIGTERM, 500 ms earlier"]
    both = told(make_killed, process(time=99.5), process(pid=51, time=102.0))
    assert both == ["collateral: pids 50, 51: ended by SIGTERM, 500 ms before to 2 s after"]


def test_hosts_are_put_together_when_each_has_lines_of_its_own(make_huge: Make) -> None:
    made = table(make_huge(), 8)
    assert made is not None
    assert made.of == "9998 of 10000 on 1250 hosts"
    assert [f"{fate.role}: {fate.who}: {fate.how}" for fate in made.fates] == [
        "root: rank 4711 (pid 18033) on node0588: killed by SIGKILL",
        "collateral: ranks 0-16, 19-4710, 4712-9999 on 1250 hosts: ended by SIGTERM from each host's torchrun, "
        "1.9 s to 3.5 s later",
        "missing: ranks 17, 18: nothing here is known of them; ran on node0002",
    ]


def test_many_kinds_of_end_are_cut_but_never_the_root(make_killed: Make) -> None:
    rest = [process(rank=rank, exit=Exit(code=rank // 2)) for rank in range(200)]
    rest += [process(rank=500, role="unknown", exit=Exit(code=77)), *[process(rank=r) for r in range(600, 650)]]
    made = table(make_killed(processes=[ROOT, *rest]), 6)
    assert made is not None
    assert len(made.fates) == 6
    assert {"root", "unknown", "collateral"} == {fate.role for fate in made.fates}
    assert "ranks 600-649" in [fate.who for fate in made.fates]
    assert made.left_out_members + sum(len(fate.members) for fate in made.fates) == len(rest) + 1


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
        ({"exit": Exit(code=1), "raised": [Raised("KeyError", "x")]}, "raised KeyError"),
        ({"exit": Exit(signal="SIGABRT"), "raised": [Raised("KeyError", "x")]}, "died of SIGABRT"),
    ],
)
def test_how_a_process_ended(changed: dict[str, object], text: str) -> None:
    assert ending(process(**changed)) == text

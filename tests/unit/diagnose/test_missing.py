"""The ranks of which an input says nothing, and where they ran."""

from __future__ import annotations

import msgspec

from ftforensics.diagnose.missing import with_missing
from ftforensics.model.case import Case, CaseException
from ftforensics.model.crash import EnvironmentVariable, Job
from ftforensics.model.death import Death
from ftforensics.model.exception import ExceptionRecord


def case(*ranks: int, size: int = 8, node: int = 1, per_node: int = 4) -> Case:
    variables = {
        "GROUP_RANK": node, "GROUP_WORLD_SIZE": size // per_node, "LOCAL_WORLD_SIZE": per_node, "WORLD_SIZE": size,
        "MASTER_ADDR": "10.0.0.1",
    }  # fmt: skip
    environment = [EnvironmentVariable(name, str(value)) for name, value in variables.items()]
    jobs = [Job(rank=rank, world_size=size, environment=environment) for rank in ranks]
    return Case(exceptions=[CaseException(ExceptionRecord(job=job)) for job in jobs])


def test_a_nodes_folder_knows_which_ranks_and_node_it_lacks() -> None:
    (death,) = with_missing([Death(pid=1, rank=4)], case(4, 5, 6, 7))
    assert death.world_size == 8 and death.missing == [0, 1, 2, 3]
    assert death.missing_on == ["node 0 (10.0.0.1)"]


def test_a_rank_of_this_node_that_left_nothing_is_on_no_other_node() -> None:
    (death,) = with_missing([Death(pid=1, rank=4)], case(4, 5, 6))
    assert death.missing == [0, 1, 2, 3, 7] and death.missing_on == ["node 0 (10.0.0.1)"]


def test_nothing_is_missing_when_all_are_there() -> None:
    (death,) = with_missing([Death(pid=1, rank=0)], case(0, 1, 2, 3, size=4, node=0))
    assert death.missing == [] and death.missing_on == []


def test_sizes_that_differ_or_are_absurd_say_nothing() -> None:
    one, other = case(0, size=4), case(1, size=8)
    both = msgspec.structs.replace(one, exceptions=[*one.exceptions, *other.exceptions])
    assert with_missing([Death(rank=0)], both)[0].world_size is None
    assert with_missing([Death(rank=0)], case(0, size=10**9))[0].missing == []
    assert with_missing([Death(rank=0)], Case())[0].missing == []

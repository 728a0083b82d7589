"""The ranks of the job that this input knows nothing of: another node's, or one that left without a trace.

Without its culprit an input holds victims only. It still says whom to look at: by the ranks that the job had, by where
the launcher put them, and by whom the survivors' exceptions name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.model.case import Case
from ftforensics.model.death import Death
from ftforensics.parsers.rank_environment import Placement, placement_of

MOST_RANKS = 1_000_000  # of a job; more is a damaged number


def with_missing(deaths: Sequence[Death], case: Case) -> list[Death]:
    """The deaths with `world_size`, `missing` and `missing_on`, where the input says how many ranks there were."""
    sizes = {size for size in (*_sizes(case), *(death.world_size for death in deaths)) if size is not None}
    if len(sizes) != 1:  # unknown, or of several jobs
        return list(deaths)
    size = sizes.pop()
    if not 1 < size <= MOST_RANKS:
        return list(deaths)
    known = {*_ranks(case), *(death.rank for death in deaths if death.rank is not None)}
    missing = [rank for rank in range(size) if rank not in known]
    where = list(dict.fromkeys(_places(missing, case))) if missing else []
    return [msgspec.structs.replace(death, world_size=size, missing=missing, missing_on=where) for death in deaths]


def _sizes(case: Case) -> Iterator[int | None]:
    yield from (one.record.job.world_size for one in case.records if one.record.job)
    yield from (one.record.job.world_size for one in case.exceptions if one.record.job)
    yield from (one.ring.process.world_size for one in case.rings)


def _ranks(case: Case) -> Iterator[int | None]:
    """Also of those that ended well or still run."""
    yield from (one.record.job.rank for one in case.records if one.record.job)
    yield from (one.record.job.rank for one in case.exceptions if one.record.job)
    yield from (one.ring.process.rank for one in case.rings)
    yield from (died.rank for run in case.runs for died in run.died)


def _places(missing: Sequence[int], case: Case) -> Iterator[str]:
    """As "node 0 (10.0.0.1)": torchrun numbers its nodes, and gives each the same number of ranks in that order."""
    placement = _placement(case)
    if placement is None or not placement.per_node:
        return
    for node in sorted({rank // placement.per_node for rank in missing}):
        if node == placement.node:
            continue
        # Rank 0 binds the master's address (torch/distributed/elastic/agent/server/api.py).
        address = f" ({placement.master})" if node == 0 and placement.master else ""
        yield f"node {node}{address}"


def _placement(case: Case) -> Placement | None:
    """Of any rank of the input; where they differ (several nodes) the first does, for it only tells the size."""
    jobs = [one.record.job for one in case.records] + [one.record.job for one in case.exceptions]
    for job in jobs:
        if job is not None and job.environment:
            found = placement_of([(entry.name, entry.value) for entry in job.environment])
            if found is not None:
                return found
    for run in case.runs:
        if run.started is not None:
            found = placement_of([_pair(entry) for entry in run.started.environment])
            if found is not None:
                return found
    return None


def _pair(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition("=")
    return name, value

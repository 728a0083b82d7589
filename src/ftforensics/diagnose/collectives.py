"""Who had not come to the collective in which the others waited: an order that needs no clock.

All ranks of a process group go through the same collectives in the same order, and NCCL's watchdog numbers them. A rank
whose last enqueued number is below the one that another rank waits in is behind: whatever stopped it, the wait is the
consequence. A rank that says nothing while every other one does is behind as well, less surely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.causes.ending import line_cite
from ftforensics.model.death import Behind, Death
from ftforensics.model.launcher import LauncherLog, StackText

MOST = 64  # ranks that are named


def with_behind(deaths: Sequence[Death], logs: Sequence[LauncherLog]) -> list[Death]:
    """The deaths of ranks that waited, with whom they waited for."""
    progress = [
        event
        for log in logs
        for event in log.events
        if isinstance(event, StackText) and event.kind == "nccl-progress" and event.rank is not None
    ]
    groups: dict[str | None, list[StackText]] = {}
    for said in progress:
        groups.setdefault(said.symbol, []).append(said)
    found: dict[int, list[Behind]] = {}
    for group in groups.values():
        for rank, behind in _behind(group, deaths):
            found.setdefault(rank, []).extend(behind)
    return [
        msgspec.structs.replace(death, behind=found[death.rank][:MOST])
        if death.rank is not None and not death.worker and death.rank in found
        else death
        for death in deaths
    ]


def _behind(group: Sequence[StackText], deaths: Sequence[Death]) -> Iterator[tuple[int, list[Behind]]]:
    """(waiting rank, whom it waited for). Of one process group."""
    last: dict[int, StackText] = {}
    for said in group:
        assert said.rank is not None
        last[said.rank] = said
    lowest = min((said.enqueued for said in last.values() if said.enqueued is not None), default=None)
    size = next((death.world_size for death in deaths if death.world_size is not None), None)
    everybody = set(range(size)) if size is not None and size <= 100_000 else set()
    everybody |= {death.rank for death in deaths if death.rank is not None and not death.worker}
    silent = sorted(everybody - set(last))
    for rank, said in last.items():
        if said.sequence is None:
            continue
        late = [one for one in last.values() if one.enqueued is not None and one.enqueued < said.sequence]
        behind = [
            Behind(one.rank, said.sequence, one.enqueued, [line_cite(one.line), line_cite(said.line)])
            for one in late
            if one.rank is not None
        ]
        # Only of the default group is everybody a member; a few that are silent among many are the ones.
        if not behind and lowest is not None and said.symbol in (None, "0(default_pg)") and len(silent) < len(last):
            behind = [Behind(other, said.sequence, None, [line_cite(said.line)]) for other in silent]
        if behind:
            yield rank, behind

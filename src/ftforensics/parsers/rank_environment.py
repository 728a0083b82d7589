"""What torchrun's environment variables say about where a job's ranks are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Placement(msgspec.Struct, frozen=True):
    """node: number of this one (GROUP_RANK); nodes: how many; per_node: ranks on each; master: address of node 0."""

    node: int | None = None
    nodes: int | None = None
    per_node: int | None = None
    master: str | None = None


def placement_of(environment: Sequence[tuple[str, str]]) -> Placement | None:
    """environment: (name, value). None where no launcher says anything. Jobs with unequal nodes have no per_node that
    holds; torchrun's are equal unless its agents were given different --nproc-per-node."""
    found = {name: value for name, value in environment if value}
    node = _number(found.get("GROUP_RANK"))
    nodes = _number(found.get("GROUP_WORLD_SIZE"))
    per_node = _number(found.get("LOCAL_WORLD_SIZE"))
    size = _number(found.get("WORLD_SIZE"))
    if nodes is not None and per_node is not None and size is not None and nodes * per_node != size:
        per_node = None
    if node is None and per_node is None:
        return None
    return Placement(node, nodes, per_node, found.get("MASTER_ADDR"))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None

"""Many ranks, and other names, in few words."""

from __future__ import annotations

from collections.abc import Sequence

MOST_SPANS = 6


def listed(names: Sequence[str], most: int) -> str:
    """As "a, b"; of more than `most` the rest is counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def ranks_text(ranks: Sequence[int], most: int = MOST_SPANS) -> str:
    """As "rank 5" or "ranks 4-7, 9"; of more than `most` spans the rest is counted."""
    numbers = sorted(set(ranks))
    spans: list[list[int]] = []
    for rank in numbers:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    texts = [f"{first}-{last}" if last > first else str(first) for first, last in spans[:most]]
    left = sum(last - first + 1 for first, last in spans[most:])
    more = f" and {left} more" if left else ""
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(texts) + more

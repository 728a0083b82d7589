"""Questions that causes, order and report all ask about the same death are answered once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ftforensics.model.death import Death

_Answer = TypeVar("_Answer")


def kept(ask: Callable[[Death], _Answer]) -> Callable[[Death], _Answer]:
    """Keeps the answer as long as there is the death: it never changes, so the same object has the same answer. With
    ten thousand ranks the shared questions were the larger part of an analysis."""
    given: dict[int, tuple[weakref.ref[Death], _Answer]] = {}

    @wraps(ask)
    def answer(death: Death) -> _Answer:
        # By identity: equality would compare all that is known of it. A reference that has died names another death,
        # which has taken its place in memory.
        key = id(death)
        before = given.get(key)
        if before is not None and before[0]() is death:
            return before[1]
        found = ask(death)
        given[key] = (weakref.ref(death, lambda gone: _forget(given, key, gone)), found)
        return found

    return answer


def _forget(given: dict[int, tuple[weakref.ref[Death], _Answer]], key: int, gone: weakref.ref[Death]) -> None:
    if key in given and given[key][0] is gone:
        del given[key]

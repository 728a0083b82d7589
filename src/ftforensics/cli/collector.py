"""The garbage collector while millions of objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Of ten thousand ranks come millions of objects, none in a cycle: to look through them again and again takes
    longer than to read them. What was made stays out of later collections. May be entered within itself."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.freeze()
            gc.enable()

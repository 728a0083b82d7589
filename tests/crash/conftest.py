"""One workplace for all crash tests of a session: programs built once, baselines measured once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import Baselines, Workplace


@pytest.fixture(scope="session")
def place() -> Iterator[Workplace]:
    with Workplace() as made:
        yield made


@pytest.fixture(scope="session")
def baselines(place: Workplace) -> Baselines:
    return Baselines(place)

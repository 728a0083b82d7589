"""A place to run small programs in, with byte code compiled once for the session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from jobs import Jobs


@pytest.fixture(scope="session")
def pycache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pycache")


@pytest.fixture
def jobs(tmp_path: Path, pycache: Path) -> Jobs:
    return Jobs(tmp_path, pycache)

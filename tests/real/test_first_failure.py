"""One of each kind of the campaign (`make campaign`): a real torchrun job, two ranks, one of them the culprit."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conditions import needs_cgroup_v1_memory, needs_root, needs_torch

pytestmark = [needs_torch, pytest.mark.timeout(300)]
FOLDER = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "first_failure"


@pytest.fixture(scope="module")
def runs() -> ModuleType:
    """benchmarks/ is no package."""
    spec = importlib.util.spec_from_file_location("first_failure_runs", FOLDER / "runs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# Each rank is a culprit, with and without @record.
CELLS = [
    pytest.param("kill", 0, False, marks=needs_root),
    pytest.param("oom", 1, True, marks=[needs_root, needs_cgroup_v1_memory]),
    ("segv", 1, True),
    ("abort", 0, False),
    ("exception", 1, True),
    ("exit", 0, True),
    pytest.param("term", 1, False, marks=needs_root),
]


@pytest.mark.xdist_group("kmsg")
@pytest.mark.parametrize(("kind", "culprit", "record"), CELLS)
def test_the_culprit_is_named_from_the_run_folder(
    runs: Any, tmp_path: Path, kind: str, culprit: int, record: bool
) -> None:
    result = runs.run(runs.Plan(kind, culprit, 2, record, ours=True), tmp_path / "run")
    assert result.truth is not None, (tmp_path / "run" / "launcher.log").read_text()
    assert result.verdict(result.folder) == "right", result


@pytest.mark.parametrize(("kind", "culprit", "record"), [("exception", 0, False), ("segv", 1, False)])
def test_the_culprit_is_named_from_the_two_logs(
    runs: Any, tmp_path: Path, kind: str, culprit: int, record: bool
) -> None:
    result = runs.run(runs.Plan(kind, culprit, 2, record, ours=False), tmp_path / "run")
    assert result.verdict(result.logs) == "right", result

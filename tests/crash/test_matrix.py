"""The crash matrix: each fault, context and condition on each installed Python, for real.

One test = one death and, cached, the same death with no handler at all. `harness.failures` holds what is asked.
"""

from __future__ import annotations

import shutil
import sys

import pytest

from analysis import mechanism_of
from cells import PLAIN, SPECIAL, Cell
from conditions import PYTHONS, Interpreter, needs_root
from harness import Baselines, Workplace, die, failures

# The Python that runs the tests gets everything; the others all faults, with the 300 threads for the faults that differ
# there (the alternate stack, the heap, the cap of CPython's dumper).
MAIN = next(python for python in PYTHONS if python.version == sys.version_info[:2])
FULL_300 = ("null_read", "stack_overflow", "malloc_locked", "double_free", "forked_child", "dtor")


def wanted(cell: Cell, python: Interpreter) -> bool:
    return python == MAIN or cell.context != "300_threads" or cell.fault in FULL_300


CASES = [
    pytest.param(cell, python, id=f"{python}-{cell}", marks=[needs_root] if cell.needs_root else [])
    for python in PYTHONS
    for cell in [*PLAIN, *SPECIAL]
    if wanted(cell, python)
]


@pytest.mark.parametrize(("cell", "python"), CASES)
def test_death(cell: Cell, python: Interpreter, place: Workplace, baselines: Baselines) -> None:
    baseline = baselines.of(cell, python.path)
    death = die(cell, "ours", place, python.path)
    wrong = failures(death, baseline, place.build, mechanism_of)
    assert not wrong, "\n".join(wrong)
    shutil.rmtree(death.folder)

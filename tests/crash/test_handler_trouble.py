"""Trouble inside the handler itself: each step made to fault, hang or allocate with the heap locked.

A step that fails costs its own member and nothing else: `stages` names it and says how it ended, the steps after it
still run, `end` is written, the process dies of its own signal, and in bounded time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cells import Cell
from harness import Baselines, Death, Workplace, die, failures

# In the order in which they run. cxx_exception and the crash reporter are not in every record.
STEPS = (
    *(
        "time",
        "process",
        "signal",
        "registers",
        "read_maps",
        "marks",
        "abort_message",
        "native",
        "python",
        "code",
        "native_frame_pointer",
    ),
    *("native_scan", "python_threads", "stack", "other_crashers", "signals_seen", "handlers", "job", "limits"),
    *("libraries", "threads", "modules", "status", "maps"),
)
SANDBOXED = ("native", "python", "python_threads")
BUDGET = 5.0  # seconds for the handler's own steps, here with what a busy machine adds

# How `stages` words each kind of trouble.
ERRORS = {"segv": "signal 11", "bus": "signal 7", "ill": "signal 4", "hang": "deadline"}


def stages_of(death: Death) -> dict[str, dict[str, object]]:
    (path,) = death.records
    return {stage["name"]: stage for stage in json.loads(path.read_bytes())["stages"]}


def die_with(
    place: Workplace, baselines: Baselines, *hooks: str, fault: str = "null_read", context: str = "thread"
) -> Death:
    cell = Cell(fault, context, hooks=hooks)
    death = die(cell, "ours", place)
    wrong = failures(death, baselines.of(cell, sys.executable), place.build, None)
    assert not wrong, "\n".join(wrong)
    return death


def test_steps_are_the_stated_ones(place: Workplace, baselines: Baselines) -> None:
    stages = stages_of(die_with(place, baselines))
    assert [name for name in stages if name in STEPS] == list(STEPS)
    assert all(stage["ok"] for name, stage in stages.items() if name != "held"), stages  # "held": a busy machine


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ERRORS)
def test_one_step_fails(kind: str, step: str, place: Workplace, baselines: Baselines) -> None:
    death = die_with(place, baselines, f"{step}:{kind}")
    stages = stages_of(death)
    assert (stages[step]["ok"], stages[step]["error"]) == (False, ERRORS[kind])
    # CPython's dumper is not entered twice: its guard may stand for ever. No maps, no walk over them.
    depends = {"python": {"python_threads"}, "read_maps": {"code", "stack", "modules", "maps", "native_scan"}}
    later = [name for name in STEPS[STEPS.index(step) + 1 :] if name not in depends.get(step, ())]
    assert [name for name in later if not stages[name]["ok"]] == []
    assert death.wall < BUDGET, death.wall


@pytest.mark.parametrize("step", STEPS)
def test_step_that_allocates_with_the_heap_locked(step: str, place: Workplace, baselines: Baselines) -> None:
    death = die_with(place, baselines, f"{step}:malloc", fault="malloc_locked")
    assert (stages_of(death)[step]["ok"], stages_of(death)[step]["error"]) == (False, "deadline")
    assert death.wall < BUDGET


def test_allocation_is_harmless_when_the_heap_is_free(place: Workplace, baselines: Baselines) -> None:
    """The hook of the test above can end well."""
    assert stages_of(die_with(place, baselines, "code:malloc"))["code"]["ok"]


@pytest.mark.parametrize(
    "hooks",
    [
        ("native:bus", "stack:ill"),
        ("registers:ill", "maps:bus"),
        ("code:segv", "modules:segv"),
        ("native:hang", "handlers:bus"),
        ("python:bus", "threads:hang"),
        ("time:segv", "native:bus", "python:ill", "stack:segv", "maps:hang"),
    ],
)
@pytest.mark.parametrize("fault", ["null_read", "double_free", "bus_truncated_file"])
def test_several_in_one_record(hooks: tuple[str, ...], fault: str, place: Workplace, baselines: Baselines) -> None:
    """Also with another signal than the first one of the process."""
    death = die_with(place, baselines, *hooks, fault=fault)
    stages = stages_of(death)
    for hook in hooks:
        step, kind = hook.split(":")
        assert (stages[step]["ok"], stages[step]["error"]) == (False, ERRORS[kind])
    assert stages["status"]["ok"]
    assert death.wall < BUDGET


@pytest.mark.parametrize("step", SANDBOXED)
def test_sandbox_killed_midway(step: str, place: Workplace, baselines: Baselines) -> None:
    stages = stages_of(die_with(place, baselines, f"{step}:kill"))
    assert not stages[step]["ok"]
    assert stages["stack"]["ok"] and stages["maps"]["ok"]


@pytest.mark.parametrize("kind", ["kill", "hang", "segv"])
def test_users_faulthandler_still_prints_after_a_cut_dumper(kind: str, place: Workplace, baselines: Baselines) -> None:
    """The dumper's static guard stays set when it is cut, so CPython itself would print nothing."""
    cell = Cell("null_read", "thread", "faulthandler_before", hooks=(f"python:{kind}",))
    death = die(cell, "ours", place)
    wrong = failures(death, baselines.of(cell, sys.executable), place.build, None)
    assert not wrong, "\n".join(wrong)
    assert "Fatal Python error: Segmentation fault" in death.stderr or "most recent call first" in death.stderr


@pytest.mark.parametrize("steps", [("registers", "stack", "maps", "threads", "modules", "status", "job", "limits")])
def test_budget_holds_when_everything_hangs(steps: tuple[str, ...], place: Workplace, baselines: Baselines) -> None:
    death = die_with(place, baselines, *(f"{step}:hang" for step in steps))
    stages = stages_of(death)
    assert death.wall < BUDGET + 2
    assert all(not stages[step]["ok"] for step in steps)


def test_a_failed_step_leaves_no_bytes(place: Workplace, baselines: Baselines) -> None:
    """The line of a failed member is missing or null, never half written."""
    (path,) = die_with(place, baselines, "stack:segv").records
    assert json.loads(Path(path).read_bytes()).get("stack") is None

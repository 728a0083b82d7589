"""Beside each labelled death a kernel log full of what happened to others: nothing that is said of this death changes.

The others are Python processes too, with other pids and groups. What carries the very pid of the death was written by a
program and not by the kernel, or is of another boot, years before.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cases.foreign_noise import beside_others, oom, with_the_same_pid
from cases.judging import CASES, files_of, label_of, roots_of, verdict_of
from ftforensics.model.diagnosis import Confidence


def assert_the_same(case: Path, files: list[Path]) -> None:
    alone, beside = verdict_of(case), verdict_of(case, files)
    verdict = (beside.verdict.cause, beside.verdict.confidence, beside.verdict.mechanism, beside.verdict.outcome)
    said = (alone.verdict.cause, alone.verdict.confidence, alone.verdict.mechanism, alone.verdict.outcome)
    log = (case / "launcher.log").read_text(errors="replace")
    if any(pid is not None and str(pid) in log for pid, _ in roots_of(alone)) or alone.verdict.cause is None:
        assert verdict == said
    else:
        # The log does not say whose death it was: that some other process was killed is a reason to be less sure.
        assert verdict == said or (beside.verdict.cause in (None, "killed-unknown"), verdict[1]) == (True, "undecided")
    if verdict == said:
        assert roots_of(beside) == roots_of(alone)
    proven = {found.cause for found in beside.hypotheses if found.confidence is Confidence.PROVEN}
    assert proven <= {found.cause for found in alone.hypotheses if found.confidence is Confidence.PROVEN}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_happened_to_others_changes_nothing(case: Path, tmp_path: Path) -> None:
    files = [file for file in files_of(case) if file.name != "kernel.log"]
    assert_the_same(case, [*files, *beside_others(case, tmp_path)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_program_wrote_or_happened_years_ago_changes_nothing(case: Path, tmp_path: Path) -> None:
    for more in with_the_same_pid(case, tmp_path):
        assert_the_same(case, [*files_of(case), more])


def test_the_noise_would_be_believed_of_the_right_process(tmp_path: Path) -> None:
    """The same builders, with the pid of the death: so the test above can fail."""
    case = next(case for case in CASES if case.name == "torchrun-sigkill")
    pid = label_of(case)["root"]
    (tmp_path / "kernel.log").write_text("".join(f"[ 2400.000000] {line}\n" for line in oom(random.Random(0), pid)))
    found = verdict_of(case, [case / "launcher.log", tmp_path / "kernel.log"])
    assert found.verdict.cause in ("cgroup-oom", "host-oom", "ancestor-cgroup-oom")

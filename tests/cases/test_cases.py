"""Every labelled death in this folder, from what lies in its own folder alone: the accepted cause, the right root,
never a cause that the label excludes.

A case has a launcher.log and a kernel.log (empty where the kernel said nothing), and may have crash records.
expected.json: `cause` is a list of accepted ids (null among them: undecided is accepted; no list: anything that is not
in `not_cause`), `not_cause` must not be the verdict, `confidence` lists accepted words, `mechanism` is
`verdict.mechanism`, `root` the pid that must have the role root (null: of a process whose pid nobody says; "nobody": no
process may have it; with `nameless` its pid stands in the kernel's log alone, and need not be told), `rank` that
process's rank, `any_root` that who was first is not labelled, `top` the first
hypothesis beside the verdict, `none_of` ids that must be no hypothesis at all, `says` what the verdict's sentence must
hold (the type of an exception, the function that raised it), `outcome` lists accepted words, `earlier` the accepted
causes of each earlier attempt. `given` holds what a person would add (`exit_code`); `symbols` stands for the symbol
tables of libraries that are not here; `rests_on` is the word that tells the case from another's record (test_hostile.py
cuts logs). `launcher_exit`, `made` (what was done to a job of make_real.py) and `seen` (the
public report that the case retells in a few lines) only inform.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cases.judging import CASES, label_of, verdict_of
from ftforensics.causes.registry import find_cause
from ftforensics.model.diagnosis import Confidence


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Path) -> None:
    expected = label_of(case)
    diagnosis = verdict_of(case)
    verdict = diagnosis.verdict
    assert verdict.cause not in expected.get("not_cause", [])
    accepted = expected.get("cause")
    if accepted is not None:
        assert verdict.cause in accepted
    if "confidence" in expected:
        assert verdict.confidence in expected["confidence"]
    if "mechanism" in expected:
        assert verdict.mechanism == expected["mechanism"]
    roots = [process for process in diagnosis.processes if process.role == "root"]
    if not expected.get("any_root"):
        accepted_roots = [[] if expected["root"] == "nobody" else [expected["root"]]]
        accepted_roots += [[None]] if expected.get("nameless") else []
        assert [process.pid for process in roots] in accepted_roots
    if "rank" in expected:
        assert [process.rank for process in roots] == [expected["rank"]]
    if "outcome" in expected:
        assert verdict.outcome in expected["outcome"]
    for words in expected.get("says", []):
        assert words in verdict.summary
    if "earlier" in expected:
        assert len(diagnosis.attempts) == len(expected["earlier"])
        for attempt, causes in zip(diagnosis.attempts, expected["earlier"], strict=True):
            assert attempt.cause in causes
    heard = [found.cause for found in diagnosis.hypotheses if found.confidence is not Confidence.RULED_OUT]
    named = find_cause(verdict.cause) if verdict.cause else None
    heard = [cause for cause in heard if named is None or cause not in named.refines]  # the verdict in coarser words
    if "top" in expected:
        assert [cause for cause in heard if cause != verdict.cause or cause == expected["top"]][:1] == [expected["top"]]
    assert not set(heard) & set(expected.get("none_of", []))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_library_and_no_driver_is_proven_guilty(case: Path) -> None:
    """Nobody with authority ever names them: that is what people conclude."""
    for found in verdict_of(case).hypotheses:
        cause = find_cause(found.cause)
        assert cause is not None
        assert cause.family != "cuda" or found.confidence is not Confidence.PROVEN


def test_the_cases_are_there() -> None:
    assert len(CASES) >= 180
    assert sum("seen" in label_of(case) for case in CASES) >= 45

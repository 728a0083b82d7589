"""What changed since the last good run strengthens a finding, but is no finding."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ftforensics.causes.registry import find_cause
from ftforensics.diagnose.change_fit import strengthened
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.diagnosis import Confidence, Finding
from ftforensics.model.ledger import Change, Changes

TORCH = Change("package", "torch", "2.4.1+cu121", "2.9.1+cu128")
CUDNN = Change("package", "nvidia-cudnn-cu12", "9.10.2.21", "9.13.0.50")
SINCE = Changes(0.0, "run-1", items=[Change("package", "requests", "1", "2"), CUDNN])
FINDING = Finding("drifted-cuda-library", Confidence.POSSIBLE, "Another cuDNN.")


def told(finding: Finding, changes: Changes | None = SINCE) -> Finding:
    cause = find_cause(finding.cause)
    assert cause is not None
    return strengthened(cause, finding, changes)


def test_one_that_fits_makes_a_possible_one_likely_and_is_cited() -> None:
    found = told(FINDING)
    assert found.confidence is Confidence.LIKELY
    assert [cite.text for cite in found.supports] == [
        "nvidia-cudnn-cu12 9.10.2.21 -> 9.13.0.50 since the last run that ended well"
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"against": [Cite("crash", "native.frames", "it died elsewhere")]},
        {"unknown": [Gap("crash", "whether the stack leads there")]},
        {"unknown": [Gap("files", "whether its package is whole")]},
    ],
)
def test_where_something_speaks_against_or_is_missing_it_is_only_cited(fields: dict[str, Any]) -> None:
    found = told(msgspec.structs.replace(FINDING, **fields))
    assert found.confidence is Confidence.POSSIBLE and found.supports


@pytest.mark.parametrize(
    "changes",
    [
        None,
        msgspec.structs.replace(SINCE, good=False),
        msgspec.structs.replace(SINCE, same_job=False),
        msgspec.structs.replace(SINCE, items=SINCE.items[:1]),
    ],
)
def test_what_does_not_fit_changes_nothing(changes: Changes | None) -> None:
    assert told(FINDING, changes) == FINDING


def test_what_is_sure_or_refuted_stays_so() -> None:
    for word in (Confidence.LIKELY, Confidence.RULED_OUT):
        assert told(msgspec.structs.replace(FINDING, confidence=word)).confidence is word


def test_another_torch_says_nothing_about_a_fork() -> None:
    forked = Finding("fork-after-cuda", Confidence.POSSIBLE, "It was forked.")
    assert told(forked, msgspec.structs.replace(SINCE, items=[TORCH])) == forked

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "kernel-oops"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().kernel("oops", module="nvidia"))
    assert finding.confidence is Confidence.PROVEN and "failed in nvidia" in finding.summary


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(15).kernel("oops"),
        ended(code=1).kernel("oops"),
        killed().kernel("cpu-limit"),
        killed(alive=True).kernel("oops"),
    ],
    ids=range(5),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().kernel("oops", Tie.STRONG), Confidence.LIKELY),
        (killed().kernel("oops", Tie.EXACT, "another name"), Confidence.LIKELY),
        (killed().kernel("oops", kind="hung-task"), Confidence.POSSIBLE),
        (killed().kernel("oops", facility=1), Confidence.POSSIBLE),
        (unseen().kernel("oops"), Confidence.PROVEN),
    ],
    ids=range(5),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

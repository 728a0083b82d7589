from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "hardware-memory-error"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(7).kernel("memory-failure", signal="SIGBUS"))
    assert finding.confidence is Confidence.PROVEN and "memory is damaged" in finding.summary


@pytest.mark.parametrize(
    "death",
    [
        ended(7),
        ended(11).kernel("memory-failure"),
        killed().kernel("oops"),
        killed(alive=True).kernel("memory-failure"),
        ended(code=1).kernel("memory-failure"),
    ],
    ids=range(5),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().kernel("memory-failure", Tie.STRONG), Confidence.LIKELY),
        (killed().kernel("memory-failure", Tie.WEAK), Confidence.POSSIBLE),
        (killed().kernel("memory-failure", facility=1), Confidence.POSSIBLE),
    ],
    ids=range(3),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

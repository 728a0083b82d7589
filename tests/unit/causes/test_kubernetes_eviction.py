from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "kubernetes-eviction"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().notice("kubernetes", "evicted", reason="memory"))
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary == "Kubernetes evicted the pod: the node was low on memory."
    (finding,) = ask_death(ID, ended(code=137).notice("kubernetes", "evicted", reason="ephemeral-storage"))
    assert finding.confidence is Confidence.PROVEN and "volume" in finding.remedies[0].text


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        killed().notice("kubernetes", "oom"),
        killed().notice("kubernetes", "stopped"),
        ended(11).notice("kubernetes", "evicted"),
        ended(code=0).notice("kubernetes", "evicted"),
    ],
    ids=range(5),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().notice("kubernetes", "evicted", Tie.STRONG), Confidence.LIKELY),
        (killed().notice("kubernetes", "evicted", Tie.WEAK), Confidence.POSSIBLE),
        (killed().notice("kubernetes", "evicted", before=-300), Confidence.POSSIBLE),
        (ended(code=1).notice("kubernetes", "evicted"), Confidence.LIKELY),  # it may have handled the SIGTERM
        (ended(code=1).notice("kubernetes", "evicted", before=None), Confidence.POSSIBLE),
        (unseen().notice("kubernetes", "evicted"), Confidence.POSSIBLE),
    ],
    ids=range(6),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "terminal-hangup"
_AGENTS = "torch.distributed.elastic.multiprocessing.api.SignalException"


def agent(number: int = 1) -> DeathBuilder:
    return ended(code=1).raised(_AGENTS, f"Process 4 got signal: {number}", hook="torchrun record")


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(1).signal(1, None, code=128))
    assert finding.confidence is Confidence.PROVEN and "terminal" in finding.summary


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        unseen(),
        ended(1).signal(1, 4000),
        ended(1).sent("bash"),
        ended(15),
        ended(1, alive=True),
        agent(15),
        agent().signal(1, 4000),
        agent().sent("bash", signal=1),
    ],
    ids=range(9),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (ended(1), Confidence.LIKELY),
        (ended(code=129), Confidence.POSSIBLE),
        (ended(1, first=True), Confidence.POSSIBLE),  # its launcher lived to report it
        (ended(1, given=True).signal(1, None, code=128), Confidence.LIKELY),
        (ended(1, ending=[]).signal(1, None, code=128), Confidence.LIKELY),
        (agent(), Confidence.LIKELY),
        (agent().signal(1, None, code=128), Confidence.LIKELY),
    ],
    ids=range(7),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

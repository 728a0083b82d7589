from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "numa-oom"


@pytest.mark.parametrize(
    ("scope", "said"), [("cpuset", "memory nodes of its cpuset (0) were full"), ("mempolicy", "it was bound to (0)")]
)
def test_fires(ask_death: AskDeath, scope: str, said: str) -> None:
    (finding,) = ask_death(ID, killed().oom(scope, nodemask="0"))
    assert finding.confidence is Confidence.PROVEN and said in finding.summary
    assert "numactl" in finding.remedies[0].text


@pytest.mark.parametrize(
    "death",
    [killed(), killed().oom("host"), killed().oom("memcg"), ended(11).oom("cpuset"), unseen(), killed().memory(63, 64)],
    ids=range(6),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().oom("cpuset", Tie.STRONG), Confidence.LIKELY),
        (killed().oom("cpuset", Tie.WEAK), Confidence.POSSIBLE),
        (killed().oom("cpuset").counter("vmstat oom_kill", 5, 5), Confidence.POSSIBLE),
        (killed().counter("vmstat oom_kill", 5, 5), Confidence.RULED_OUT),
    ],
    ids=range(4),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

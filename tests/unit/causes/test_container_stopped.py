from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "container-stopped"


@pytest.mark.parametrize(
    ("authority", "name"), [("docker", "Docker"), ("kubernetes", "Kubernetes"), ("systemd", "systemd")]
)
def test_fires(ask_death: AskDeath, authority: str, name: str) -> None:
    (finding,) = ask_death(ID, killed().notice(authority, "stopped", unit="job1", reason="liveness probe", before=30))
    assert finding.confidence is Confidence.PROVEN and finding.summary == f"{name} stopped job1 (liveness probe)."


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(15).signal(15, 0),
        killed().signal(15, 0, before=3.0),
        killed().signal(15, 4000, before=10.2),
        killed().notice("docker", "oom"),
        ended(11).notice("docker", "stopped"),
        killed().notice("slurm", "killed"),
    ],
    ids=range(7),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().signal(15, 0, before=10.2), Confidence.POSSIBLE),
        (killed().notice("docker", "stopped", Tie.STRONG), Confidence.LIKELY),
        (killed().notice("docker", "stopped", before=-30), Confidence.POSSIBLE),
        (killed().notice("docker", "stopped").oom("memcg"), Confidence.LIKELY),
        (killed().notice("docker", "killed").sent("containerd-shim-runc-v2"[:15]), Confidence.PROVEN),
        (ended(code=143).notice("docker", "stopped"), Confidence.PROVEN),
    ],
    ids=range(6),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

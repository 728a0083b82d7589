from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from ftforensics.model.ring import SlowSample
from synth.death import DeathBuilder, ended, killed

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "cpu-time-limit"


def test_fires_on_the_soft_limit(ask_death: AskDeath) -> None:
    death = ended(24, cpu_limit_soft=60).used_cpu(60.2).signal(24, None, code=128)
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary == "Ended by the kernel: its limit of 60 s of processor time was used up."


def test_fires_on_the_hard_limit(ask_death: AskDeath) -> None:
    death = killed(cpu_limit_hard=60).used_cpu(60.1).sent("python", by_kernel=True).counter("vmstat oom_kill", 5, 5)
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.PROVEN
    assert any("60.1 s of processor time used, hard limit 60 s" in cite.text for cite in finding.supports)


def test_fires_on_the_kernels_line(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().kernel("cpu-limit"))
    assert finding.confidence is Confidence.PROVEN


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        killed(cpu_limit_hard=60),
        killed(cpu_limit_hard=60).used_cpu(20),
        killed(cpu_limit_hard=60).used_cpu(500),
        killed(cpu_limit_hard=60).used_cpu(60.2).sent("bash"),
        ended(24).signal(24, 4000),
        ended(15, cpu_limit_hard=60).used_cpu(60),
        killed().used_cpu(60),
        killed(cpu_limit_hard=60).memory(30, 64, slow=[SlowSample(999.9, cpu_seconds=20.0)]),
    ],
    ids=range(9),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed(cpu_limit_hard=60).used_cpu(60.2), Confidence.LIKELY),
        (killed(cpu_limit_hard=60).used_cpu(60.2).sent("python", by_kernel=True), Confidence.LIKELY),
        (killed(cpu_limit_hard=60).memory(30, 64, slow=[SlowSample(999.9, cpu_seconds=59.5)]), Confidence.LIKELY),
        (killed(cpu_limit_hard=60).used_cpu(60.2).oom("memcg"), Confidence.POSSIBLE),
        (killed().kernel("cpu-limit", Tie.STRONG), Confidence.LIKELY),
        (killed().kernel("cpu-limit", facility=1), Confidence.POSSIBLE),
        (ended(24), Confidence.LIKELY),
        (ended(24, cpu_limit_soft=60).used_cpu(20), Confidence.POSSIBLE),
        (ended(24, given=True).signal(24, None, code=128), Confidence.LIKELY),
    ],
    ids=range(9),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

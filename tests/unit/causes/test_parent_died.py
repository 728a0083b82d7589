from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "parent-died"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().parent_died(0.01).sent("python", role="parent"))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "Ended by SIGKILL 10 ms after its parent had ended."


def test_fires_in_a_pid_namespace_whose_first_process_ended(ask_death: AskDeath) -> None:
    death = killed().parent_died(0.01).sent("bash", by_kernel=True).counter("vmstat oom_kill", 5, 5)
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        killed().parent_died(60.0),
        killed().parent_died(-0.5),
        ended(11).parent_died(),
        killed().parent_died().sent("bash"),
        unseen().parent_died(),
        ended(code=1).parent_died(),
    ],
    ids=range(7),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().parent_died(), Confidence.POSSIBLE),
        (killed().parent_died().sent("python", by_kernel=True), Confidence.POSSIBLE),
        (killed().parent_died().sent("python", role="parent").oom("memcg"), Confidence.POSSIBLE),
        (ended(15).parent_died().signal(15, 17000, role="parent"), Confidence.LIKELY),
    ],
    ids=range(4),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

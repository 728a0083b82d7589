from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "ancestor-cgroup-oom"


def test_fires_on_the_kernels_own_record(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().oom("memcg", own=False))
    assert finding.confidence is Confidence.PROVEN
    assert "the memory limit of /slurm (64 GiB), above this job's own group, was reached" in finding.summary


def test_fires_when_only_a_group_above_reached_its_limit(ask_death: AskDeath) -> None:
    death = killed().counter("oom_kill", 0, 1).counter("oom", 0, 0).counter("oom", 3, 4, own=False)
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.LIKELY
    assert {"oom_kill 0 -> 1", "oom 3 -> 4"} <= {cite.text for cite in finding.supports}
    assert ask_death("cgroup-oom", death) == []


def test_fires_when_a_group_above_was_full(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().memory(30, 64, above=(127, 128)))
    assert finding.confidence is Confidence.LIKELY and "the memory limit of /slurm (128 GiB)" in finding.summary


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(15).oom("memcg", own=False),
        killed().oom("memcg"),
        killed().oom("memcg", own=None),
        killed().counter("oom_kill", 0, 1).counter("oom", 0, 1).counter("oom", 3, 4, own=False),
        killed().memory(30, 64, above=(100, 128)),
        unseen().counter("oom", 3, 4, own=False),  # a neighbour's, perhaps
    ],
    ids=range(7),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().oom("memcg", Tie.STRONG, own=False), Confidence.LIKELY),
        (killed().oom("memcg", Tie.WEAK, own=False), Confidence.POSSIBLE),
        (killed().oom("memcg", own=False).counter("vmstat oom_kill", 5, 5), Confidence.POSSIBLE),
        (killed().memory(30, 64, above=(127, 128), age=3.0), Confidence.POSSIBLE),
        (killed().counter("oom_kill", 0, 0), Confidence.RULED_OUT),
    ],
    ids=range(5),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

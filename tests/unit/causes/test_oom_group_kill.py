from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "oom-group-kill"

GROUP = "/kubepods/pod1"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().oom("memcg", chosen=False, group_kill=GROUP))
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith("Killed by the kernel together with /kubepods/pod1")
    assert finding.remedies[-1].command == "echo 0 > /sys/fs/cgroup/kubepods/pod1/memory.oom.group"


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        killed().oom("memcg", group_kill=GROUP),  # the chosen one: cgroup-oom
        killed().counter("oom_group_kill", 0, 1),  # it alone died
        killed(died_together=8).counter("oom_group_kill", 1, 1),
        ended(15, died_together=8).counter("oom_group_kill", 0, 1),
        unseen(),
    ],
    ids=range(6),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


def test_the_chosen_one_is_not_called_a_member(ask_death: AskDeath) -> None:
    (finding,) = ask_death("cgroup-oom", killed().oom("memcg", group_kill=GROUP))
    assert finding.confidence is Confidence.PROVEN


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().oom("memcg", Tie.STRONG, chosen=False), Confidence.LIKELY),
        (killed().oom("memcg", Tie.WEAK, chosen=False), Confidence.POSSIBLE),
        (killed(died_together=8).counter("oom_group_kill", 0, 1), Confidence.POSSIBLE),
        (killed().counter("vmstat oom_kill", 5, 5), Confidence.RULED_OUT),
    ],
    ids=range(4),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

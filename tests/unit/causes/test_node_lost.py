from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.basics import Cite
from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "node-lost"
BOOTED = Cite("boot", "/proc/sys/kernel/random/boot_id", "another boot id now")


def test_fires_when_the_scheduler_says_so(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().notice("slurm", "node-failed"))
    assert finding.confidence is Confidence.PROVEN and finding.summary == "Slurm lost the node gpu-07."


def test_fires_when_the_machine_was_started_again(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, unseen(rebooted=BOOTED, rebooted_after=90.0))
    assert finding.confidence is Confidence.LIKELY and "started again 90 s later" in finding.summary


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        unseen(),
        killed(rebooted=BOOTED, rebooted_after=90.0),
        ended(code=1, rebooted=BOOTED),
        killed().notice("slurm", "cancelled"),
    ],
    ids=range(5),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (unseen(rebooted=BOOTED), Confidence.POSSIBLE),
        (unseen(rebooted=BOOTED, rebooted_after=86400.0), Confidence.POSSIBLE),
        (killed().notice("slurm", "node-failed", Tie.STRONG), Confidence.LIKELY),
        (unseen().notice("slurm", "node-failed"), Confidence.POSSIBLE),
    ],
    ids=range(4),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

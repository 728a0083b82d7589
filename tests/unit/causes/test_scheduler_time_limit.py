from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "scheduler-time-limit"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(15).notice("slurm", "time-limit", unit="4411"))
    assert finding.confidence is Confidence.PROVEN and finding.summary == "Slurm ended job 4411 at its time limit."


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(11).notice("slurm", "time-limit"),
        ended(code=0).notice("slurm", "time-limit"),
        killed().notice("slurm", "cancelled"),
        killed().notice("slurm", "oom"),
        killed(alive=True).notice("slurm", "time-limit"),
    ],
    ids=range(6),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().notice("slurm", "time-limit", before=30), Confidence.PROVEN),
        (killed().notice("slurm", "time-limit", Tie.TEXT, before=None), Confidence.LIKELY),
        (killed().notice("slurm", "time-limit", Tie.STRONG), Confidence.LIKELY),
        (killed().notice("slurm", "time-limit", Tie.WEAK), Confidence.POSSIBLE),
        (killed().notice("slurm", "time-limit", before=-60), Confidence.POSSIBLE),
        (killed().notice("slurm", "time-limit", before=7200), Confidence.POSSIBLE),
        (ended(code=1).notice("slurm", "time-limit"), Confidence.LIKELY),
        (ended(code=1).notice("slurm", "time-limit", before=None), Confidence.POSSIBLE),
        (killed().notice("slurm", "time-limit").oom("memcg"), Confidence.LIKELY),
        (killed().notice("slurm", "time-limit").sent("bash"), Confidence.LIKELY),
        (killed().notice("slurm", "time-limit").sent("slurmstepd"), Confidence.PROVEN),
        (unseen().notice("slurm", "time-limit"), Confidence.POSSIBLE),
    ],
    ids=range(12),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

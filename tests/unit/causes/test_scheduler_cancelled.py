from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "scheduler-cancelled"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(15).notice("slurm", "cancelled", unit="4411.0", reason="by 1000"))
    assert finding.confidence is Confidence.PROVEN and finding.summary == "Slurm cancelled the job 4411.0 (by 1000)."
    assert (finding.remedies[0].command or "").startswith("sacct -j 4411 -o")


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(11).notice("slurm", "cancelled"),
        killed().notice("slurm", "time-limit"),
        killed().notice("slurm", "cancelled").notice("slurm", "time-limit"),
        killed().notice("slurm", "cancelled").notice("slurm", "oom"),
        killed().notice("slurm", "cancelled", alone=True).set(alive=True),
    ],
    ids=range(6),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().notice("slurm", "cancelled"), Confidence.LIKELY),
        (killed().notice("slurm", "cancelled", Tie.WEAK), Confidence.POSSIBLE),
        (killed().notice("slurm", "cancelled", reason="by 0", before=-1.5), Confidence.LIKELY),
        (killed().notice("slurm", "cancelled", reason="by 0", before=-60), Confidence.POSSIBLE),
        (killed().notice("slurm", "cancelled", reason="by 0").oom("memcg"), Confidence.LIKELY),
    ],
    ids=range(5),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

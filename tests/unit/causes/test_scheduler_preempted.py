from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "scheduler-preempted"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(15).notice("slurm", "preempted", unit="4411"))
    assert (
        finding.confidence is Confidence.PROVEN
        and finding.summary == "Slurm took job 4411's resources for another one."
    )


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(11).notice("slurm", "preempted"),
        ended(code=0).notice("slurm", "preempted"),
        killed().notice("slurm", "cancelled"),
        killed().notice("slurm", "oom"),
        killed(alive=True).notice("slurm", "preempted"),
    ],
    ids=range(6),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().notice("slurm", "preempted", before=30), Confidence.PROVEN),
        (killed().notice("slurm", "preempted", Tie.TEXT, before=None), Confidence.LIKELY),
        (killed().notice("slurm", "preempted", Tie.STRONG), Confidence.LIKELY),
        (killed().notice("slurm", "preempted", Tie.WEAK), Confidence.POSSIBLE),
        (killed().notice("slurm", "preempted", before=-60), Confidence.POSSIBLE),
        (killed().notice("slurm", "preempted", before=7200), Confidence.POSSIBLE),
        (ended(code=1).notice("slurm", "preempted"), Confidence.LIKELY),
        (ended(code=1).notice("slurm", "preempted", before=None), Confidence.POSSIBLE),
        (killed().notice("slurm", "preempted").oom("memcg"), Confidence.LIKELY),
        (killed().notice("slurm", "preempted").sent("bash"), Confidence.LIKELY),
        (killed().notice("slurm", "preempted").sent("slurmstepd"), Confidence.PROVEN),
        (unseen().notice("slurm", "preempted"), Confidence.POSSIBLE),
    ],
    ids=range(12),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]


def test_a_job_that_is_queued_again_made_room_for_nobody_that_is_known(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(15).notice("slurm", "requeued", unit="4411"))
    assert finding.summary == "Slurm ended job 4411 to queue it again."

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "launcher-teardown"


def test_fires_on_a_traced_sender(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().sent("torchrun", 17987, role="launcher"))
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary == "Ended by its launcher, torchrun (pid 17987), with SIGKILL; the reason lies elsewhere."


def test_fires_on_what_the_recorder_noted(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(15).signal(15, 17987, role="launcher", comm="torchrun"))
    assert finding.confidence is Confidence.PROVEN and "torchrun (pid 17987)" in finding.summary


def test_fires_on_the_launchers_log(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(15).ended_by("torchrun", 15))
    assert finding.confidence is Confidence.LIKELY
    assert any("closing signal SIGTERM" in cite.text for cite in finding.supports)


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(15),
        ended(11).ended_by(),
        ended(code=1).ended_by(),
        killed().sent("bash"),
        ended(15).signal(15, 4000),
        ended(15).signal(15, 17987, role="launcher").set(alive=True),
        killed().signal(15, 17987, role="launcher", before=3600.0),
    ],
    ids=range(8),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().sent("torchrun", 17987, Tie.STRONG, role="launcher"), Confidence.LIKELY),
        (ended(15).signal(15, 17987, code=-1, role="launcher"), Confidence.LIKELY),
        (killed().signal(15, 17987, before=30.0, role="launcher"), Confidence.LIKELY),
        (unseen().signal(15, 17987, role="launcher"), Confidence.LIKELY),
        (killed().ended_by("torchrun", 15), Confidence.POSSIBLE),
        (killed().ended_by("deepspeed", None), Confidence.LIKELY),
        (unseen().ended_by("torchrun", 15), Confidence.POSSIBLE),
        (killed().ended_by("torchrun", 9).oom("memcg"), Confidence.POSSIBLE),
        (killed().signal(15, 17987, before=30.0, role="launcher").oom("memcg"), Confidence.POSSIBLE),
    ],
    ids=range(9),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "earlyoom"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().notice("earlyoom", "killed"))
    assert finding.confidence is Confidence.PROVEN and "Killed by earlyoom" in finding.summary
    assert any(cite.source == "earlyoom" for cite in finding.supports)


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(11).notice("earlyoom", "killed"),
        ended(code=0).notice("earlyoom", "killed"),
        killed(alive=True).notice("earlyoom", "killed"),
        killed().notice("systemd", "oom"),
        killed().oom("host"),
        killed().sent("bash"),
    ],
    ids=range(7),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().notice("earlyoom", "killed", Tie.TEXT, before=None, pid=18033), Confidence.PROVEN),
        (killed().notice("earlyoom", "killed", Tie.TEXT, before=None), Confidence.LIKELY),  # names nobody
        (killed().notice("earlyoom", "killed", Tie.STRONG), Confidence.LIKELY),
        (killed().notice("earlyoom", "killed", Tie.WEAK), Confidence.POSSIBLE),
        (killed().notice("earlyoom", "killed", Tie.EXACT, "another name"), Confidence.LIKELY),
        (killed().notice("earlyoom", "killed", before=3600), Confidence.POSSIBLE),
        (killed().notice("earlyoom", "killed", before=-60), Confidence.POSSIBLE),  # after the end
        (killed().notice("earlyoom", "killed", before=-2.5), Confidence.LIKELY),  # within the slack of two clocks
        (killed().notice("earlyoom", "killed").oom("memcg"), Confidence.LIKELY),  # the kernel claims it too
        (killed().notice("earlyoom", "killed").sent("bash"), Confidence.LIKELY),
        (unseen().notice("earlyoom", "killed"), Confidence.POSSIBLE),
    ],
    ids=range(11),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]


def test_fires_on_a_traced_sender_of_that_name_without_proof(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().sent("earlyoom"))
    assert finding.confidence is Confidence.LIKELY, "anybody may call a process so"
    (finding,) = ask_death(ID, killed().sent("earlyoom").oom("memcg"))
    assert finding.confidence is Confidence.POSSIBLE and finding.against

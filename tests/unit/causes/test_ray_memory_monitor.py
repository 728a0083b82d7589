from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "ray-memory-monitor"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().notice("ray", "killed", rss=20 << 30))
    assert finding.confidence is Confidence.PROVEN and "It held 20 GiB." in finding.summary
    assert any(cite.source == "ray" for cite in finding.supports)


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(11).notice("ray", "killed"),
        ended(code=0).notice("ray", "killed"),
        killed(alive=True).notice("ray", "killed"),
        killed().notice("systemd", "oom"),
        killed().oom("host"),
        killed().sent("raylet"),
    ],
    ids=range(7),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().notice("ray", "killed", Tie.TEXT, before=None, pid=18033), Confidence.PROVEN),
        (killed().notice("ray", "killed", Tie.TEXT, before=None), Confidence.LIKELY),  # names nobody
        (killed().notice("ray", "killed", Tie.STRONG), Confidence.LIKELY),
        (killed().notice("ray", "killed", Tie.WEAK), Confidence.POSSIBLE),
        (killed().notice("ray", "killed", Tie.EXACT, "another name"), Confidence.LIKELY),
        (killed().notice("ray", "killed", before=3600), Confidence.POSSIBLE),
        (killed().notice("ray", "killed", before=-60), Confidence.POSSIBLE),  # after the end
        (killed().notice("ray", "killed", before=-2.5), Confidence.LIKELY),  # within the slack of two clocks
        (killed().notice("ray", "killed").oom("memcg"), Confidence.LIKELY),  # the kernel claims it too
        (killed().notice("ray", "killed").sent("bash"), Confidence.LIKELY),
        (unseen().notice("ray", "killed"), Confidence.POSSIBLE),
    ],
    ids=range(11),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]

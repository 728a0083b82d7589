from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "systemd-oomd"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().notice("systemd-oomd", "killed", group="/user.slice"))
    assert (
        finding.confidence is Confidence.PROVEN
        and "Killed by systemd-oomd with its unit /user.slice" in finding.summary
    )
    assert any(cite.source == "systemd-oomd" for cite in finding.supports)


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(11).notice("systemd-oomd", "killed"),
        ended(code=0).notice("systemd-oomd", "killed"),
        killed(alive=True).notice("systemd-oomd", "killed"),
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
        (killed().notice("systemd-oomd", "killed", Tie.TEXT, before=None, pid=18033), Confidence.PROVEN),
        (killed().notice("systemd-oomd", "killed", Tie.TEXT, before=None), Confidence.LIKELY),  # names nobody
        (killed().notice("systemd-oomd", "killed", Tie.STRONG), Confidence.LIKELY),
        (killed().notice("systemd-oomd", "killed", Tie.WEAK), Confidence.POSSIBLE),
        (killed().notice("systemd-oomd", "killed", Tie.EXACT, "another name"), Confidence.LIKELY),
        (killed().notice("systemd-oomd", "killed", before=3600), Confidence.POSSIBLE),
        (killed().notice("systemd-oomd", "killed", before=-60), Confidence.POSSIBLE),  # after the end
        (killed().notice("systemd-oomd", "killed", before=-2.5), Confidence.LIKELY),  # within the slack of two clocks
        (killed().notice("systemd-oomd", "killed").oom("memcg"), Confidence.LIKELY),  # the kernel claims it too
        (killed().notice("systemd-oomd", "killed").sent("bash"), Confidence.LIKELY),
        (unseen().notice("systemd-oomd", "killed"), Confidence.POSSIBLE),
    ],
    ids=range(11),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]


def test_fires_on_a_traced_sender_of_that_name_without_proof(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().sent("systemd-oomd"))
    assert finding.confidence is Confidence.LIKELY, "anybody may call a process so"
    (finding,) = ask_death(ID, killed().sent("systemd-oomd").oom("memcg"))
    assert finding.confidence is Confidence.POSSIBLE and finding.against


def test_counters_that_did_not_move_speak_for_it(ask_death: AskDeath) -> None:
    death = killed().notice("systemd-oomd", "killed").counter("vmstat oom_kill", 5, 5)
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.PROVEN
    assert any(cite.text == "vmstat oom_kill 5 -> 5" for cite in finding.supports)

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import PID, DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "interrupted"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(2).signal(2, None, code=128))
    assert finding.confidence is Confidence.PROVEN and finding.summary == "Interrupted at the terminal (Ctrl-C)."


def test_fires_though_python_raises_it_once_more(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(2).signal(2, None, code=128, before=0.2).signal(2, PID, before=0.01))
    assert finding.confidence is Confidence.PROVEN


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        unseen(),
        ended(2).signal(2, 4000),
        ended(2).sent("bash"),
        ended(15),
        ended(code=1),
        ended(code=1).exception("RuntimeError"),
        ended(code=1).exception("KeyboardInterrupt").exception("OSError"),
        ended(2, alive=True),
    ],
    ids=range(9),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (ended(2), Confidence.LIKELY),
        (ended(2).signal(2, PID), Confidence.LIKELY),
        (ended(code=130), Confidence.POSSIBLE),
        (ended(code=130).exception("KeyboardInterrupt"), Confidence.LIKELY),
        (ended(code=1).exception("KeyboardInterrupt"), Confidence.LIKELY),
        (ended(2, given=True).signal(2, None, code=128), Confidence.LIKELY),
    ],
    ids=range(6),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]


def test_fires_for_the_process_own_record_of_it(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(2).raised("KeyboardInterrupt", ""))
    assert finding.confidence is Confidence.LIKELY
    assert any(cite.source == "exception" for cite in finding.supports)
    assert ask_death(ID, ended(code=1).raised("ValueError", "x")) == []


@pytest.mark.parametrize(("said", "causes"), [("got signal: 2", 1), ("got signal: 15", 0), ("got signal: 2 bytes", 0)])
def test_what_torchrun_makes_of_it(ask_death: AskDeath, said: str, causes: int) -> None:
    agent = ended(code=1).raised(
        "torch.distributed.elastic.multiprocessing.api.SignalException", f"Process 4 {said}", hook="torchrun record"
    )
    assert [finding.confidence for finding in ask_death(ID, agent)] == [Confidence.LIKELY] * causes

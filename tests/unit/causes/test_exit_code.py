from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.causes.registry import Kind, find_cause
from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "exit-code"


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(code=3))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "The process ended itself with exit status 3."


def test_the_last_exception_is_quoted(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(code=1).exception("OSError", "first").exception("ValueError", "loss is nan"))
    assert finding.summary.endswith("with exit status 1 after ValueError: loss is nan.")
    assert finding.supports[-1].text == "ValueError: loss is nan"


def test_it_is_a_residual() -> None:
    cause = find_cause(ID)
    assert cause is not None and cause.kind is Kind.RESIDUAL


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        unseen(),
        ended(code=0),
        ended(code=137),
        ended(code=139),
        ended(code=247),
        ended(code=1, alive=True),
        ended(15),
    ],
    ids=range(8),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (ended(code=1), Confidence.LIKELY),
        (ended(code=200), Confidence.LIKELY),
        (ended(code=1).notice("slurm", "requeued", Tie.STRONG, before=None, above=True), Confidence.POSSIBLE),
        (ended(code=1).notice("slurm", "requeued", Tie.WEAK, before=None, above=True), Confidence.LIKELY),
        (ended(code=1).notice("slurm", "requeued", Tie.STRONG, before=None), Confidence.LIKELY),
        (ended(code=1).notice("slurm", "cancelled", Tie.STRONG, before=None, above=True), Confidence.LIKELY),
    ],
    ids=range(6),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]


def test_the_process_own_record_is_quoted(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(code=1).raised("ValueError", "loss is nan\nmore"))
    assert finding.summary.endswith("with exit status 1 after ValueError: loss is nan.")
    assert finding.supports[-1].source == "exception"


def test_a_launchers_exception_is_not_quoted_as_its_own(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(code=1).exception("x.ChildFailedError", "train.py FAILED"))
    assert finding.summary == "The process ended itself with exit status 1."


def test_an_answer_to_a_signal_is_not_the_reason(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(code=1).raised("x.SignalException", "Process 4 got signal: 15"))
    assert finding.confidence is Confidence.POSSIBLE

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import TORCH, TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "loss-nan"
TYPE = "RuntimeError"
SAID = "loss is NaN at step 5"


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(TYPE, SAID)


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception(TYPE, SAID, file=TRAIN)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith(
        "The loss was not a number any more: RuntimeError: loss is NaN at step 5, raised at train.py:80 in f0."
    )
    assert finding.supports[0].locator == "rank3.exception.json exceptions[0]"
    assert finding.remedies and all(remedy.text for remedy in finding.remedies)


def test_fires_by_the_log(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged())
    assert finding.confidence is Confidence.LIKELY
    assert finding.supports[0].text == f"{TYPE}: {SAID}"


@pytest.mark.parametrize(
    "death",
    [
        ended(code=1).exception("KeyError", "loss_nan", file=TRAIN),
        ended(code=1).exception("ValueError", "could not convert string to float: 'nan loss'", file=TRAIN),
        ended(code=1).exception("FileNotFoundError", "[Errno 2] No such file or directory: 'loss nan.txt'", file=TRAIN),
        ended(code=1).exception("ValueError", "unknown loss in /runs/nan/a.yaml", file=TRAIN),
        ended(code=1).exception("ValueError", "the weights hold nan", file=TRAIN),
        ended(code=1).exception("ValueError", "could not convert loss to nan", file=TRAIN),
        ended(9).exception(TYPE, SAID, file=TRAIN),
        recorded(code=0),
        recorded(alive=True),
    ],
    ids=range(9),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (recorded(watched=False, ending=[]), Confidence.LIKELY),
        (recorded(code=None), Confidence.LIKELY),
        (recorded(code=3), Confidence.LIKELY),
        (logged(code=None), Confidence.POSSIBLE),
        (logged(code=3), Confidence.POSSIBLE),
        (logged().set(exceptions=[]).exception(TYPE, SAID, file=TORCH), Confidence.POSSIBLE),
        (ended(code=1).exception(TYPE, SAID), Confidence.POSSIBLE),
    ],
    ids=range(7),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is confidence


@pytest.mark.parametrize(
    ("said", "confidence"),
    [
        ("Loss is nan, stopping training", Confidence.LIKELY),
        ("training diverged: loss=inf", Confidence.LIKELY),
        ("The loss returned in `training_step` is nan or inf.", Confidence.LIKELY),
        ("Model diverged with total_loss = NaN", Confidence.LIKELY),
        ("found NaN in local forward loss calculation", Confidence.LIKELY),
        ("NaN or Inf found in loss", Confidence.LIKELY),
        ("non-finite loss: inf", Confidence.LIKELY),
        ("Loss became infinite or NaN at iteration=0!", Confidence.LIKELY),
        ("this loss does not support inf weights", Confidence.POSSIBLE),
        ("loss scaling needs a range without nan", Confidence.POSSIBLE),
    ],
)
def test_only_a_statement_about_the_loss_is_one(ask_death: AskDeath, said: str, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, ended(code=1).exception("ValueError", said, file=TRAIN))
    assert finding.confidence is confidence

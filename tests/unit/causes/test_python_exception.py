from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.basics import Cite
from ftforensics.model.crash import Time
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import BOOT, END, TORCH, TRAIN, DeathBuilder, at, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "python-exception"


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(
        "ValueError", "batch 17 holds no label", TRAIN, TORCH
    )


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception("ValueError", "batch 17 holds no label", file=TRAIN, file_line=12)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary == "ValueError: batch 17 holds no label, raised at train.py:80 in f0."
    assert finding.supports[0].source == "exception"


def test_fires_by_a_launchers_word_on_the_status(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded(watched=False))
    assert finding.confidence is Confidence.PROVEN


def test_fires_by_the_log(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged())
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "ValueError: batch 17 holds no label, raised at train.py:12."


def test_the_first_failure_is_named_and_what_it_ended_with(ask_death: AskDeath) -> None:
    death = ended(code=1).exception("ValueError", "loss of rank 3", file=TRAIN, number=20)
    (finding,) = ask_death(ID, death.exception("OSError", "cannot close", file=TRAIN, chained=True, handling=True))
    assert finding.summary.startswith("ValueError: loss of rank 3, raised at train.py")
    assert finding.summary.endswith("(what it ended with then: OSError).")


@pytest.mark.parametrize(
    "death",
    [
        ended(code=1),
        recorded(signal=11, code=None),
        recorded(signal=9, code=None),
        recorded(code=139),
        recorded(code=0),
        recorded(alive=True),
        recorded().raised("RuntimeError", "Connection closed by peer", peer_lost=True),
        ended(code=1).exception("KeyboardInterrupt", "", file=TRAIN),
        ended(code=1).exception("torch.distributed.elastic.multiprocessing.api.SignalException", "got signal: 15"),
        ended(code=2).exception("SystemExit", "unrecognized arguments: --x"),
    ],
    ids=range(10),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (recorded(watched=False, ending=[]), Confidence.LIKELY),
        (recorded(watched=False, ending=[Cite("exception", "rank3.exception.json", "status 1")]), Confidence.LIKELY),
        (recorded(given=True), Confidence.LIKELY),
        (recorded(code=None), Confidence.LIKELY),
        (recorded(code=3), Confidence.LIKELY),
        (recorded().raised("ValueError", "x", time=Time(monotonic=END - 600, boot_id=BOOT)), Confidence.LIKELY),
        (recorded().raised("ValueError", "x", time=Time(monotonic=END - 9, boot_id=BOOT)), Confidence.PROVEN),
        (recorded().raised("ValueError", "x", hook="torchrun error file"), Confidence.LIKELY),
        (recorded().raised("ValueError", "x", hook="threading.excepthook", thread="Thread-1"), Confidence.POSSIBLE),
        (recorded().signal(15, 777, before=2.0), Confidence.POSSIBLE),
        (logged(code=None), Confidence.POSSIBLE),
        (logged(code=3), Confidence.POSSIBLE),
        (logged().ended_by(), Confidence.POSSIBLE),
        (ended(code=1).exception("ValueError", "x", moment=at(END - 600)), Confidence.POSSIBLE),
        (ended(code=1).exception("ValueError", "x", moment=at(END - 20)), Confidence.LIKELY),
    ],
    ids=range(15),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is confidence
    if confidence is Confidence.POSSIBLE:
        assert finding.against or finding.unknown


def test_a_place_that_is_not_known_is_a_gap(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(code=1).exception("ValueError", "x"))
    assert any("where it was raised" in gap.why for gap in finding.unknown)


def test_one_that_nobody_is_named_for_is_a_lead(ask_death: AskDeath) -> None:
    seen = ended().exception("ValueError", "x", rank=None).death.exceptions
    (finding,) = ask_death(ID, ended(code=1, unowned=seen))
    assert finding.confidence is Confidence.POSSIBLE
    assert "ValueError: x" in finding.summary and finding.unknown
    assert ask_death(ID, ended(9, unowned=seen)) == []


def test_hostile_text_stays_one_bounded_line(ask_death: AskDeath) -> None:
    said = "a\x1b[31m" + "\n".join("x" * 400 for _ in range(100))
    (finding,) = ask_death(ID, ended(code=1).raised("E" * 900, said, "/x/" + "y" * 900 + ".py"))
    assert "\n" not in finding.summary and len(finding.summary) < 1000


def test_one_in_whose_line_the_log_ends_is_a_lead(ask_death: AskDeath) -> None:
    (seen,) = ended().exception("ValueError", "x", rank=0).death.exceptions
    (finding,) = ask_death(ID, ended(code=1, unowned=[msgspec.structs.replace(seen, cut=True)]))
    assert finding.confidence is Confidence.POSSIBLE
    assert "the log ends" in finding.summary and finding.unknown

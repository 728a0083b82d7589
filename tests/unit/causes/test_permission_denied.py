from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "permission-denied"
TYPE = "PermissionError"
SAID = "[Errno 13] Permission denied: '/root/.cache'"


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(TYPE, SAID)


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception(TYPE, SAID, file=TRAIN)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith(
        "The process was not allowed to do that: PermissionError: [Errno 13] Permission denied: '/root/.cache'"
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
        ended(code=1).exception("FileNotFoundError", "[Errno 2] No such file or directory: '/x'", file=TRAIN),
        ended(code=1).exception("RuntimeError", SAID, file=TRAIN),
        ended(9).exception(TYPE, SAID, file=TRAIN),
        recorded(code=0),
        recorded(alive=True),
    ],
    ids=range(5),
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
    ],
    ids=range(5),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is confidence


def test_a_read_only_mount_is_said_as_one(ask_death: AskDeath) -> None:
    said = "[Errno 30] Read-only file system: '/data/out'"
    (finding,) = ask_death(ID, ended(code=1).exception("OSError", said, file=TRAIN))
    assert finding.summary.startswith("The file system is read-only")
    assert "findmnt -T /data/out" in (finding.remedies[0].command or "")

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "file-not-found"
TYPE = "FileNotFoundError"
SAID = "[Errno 2] No such file or directory: '/data/a b.json'"


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(TYPE, SAID)


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception(TYPE, SAID, file=TRAIN)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith(
        "A file or folder was not there: FileNotFoundError: [Errno 2] No such file or directory: '/data/a b.json'"
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
        ended(code=1).exception(
            TYPE, "[Errno 2] No such file or directory", file="/usr/lib/python3.11/multiprocessing/connection.py"
        ),
        ended(code=1).exception(TYPE, "[Errno 2] No such file or directory: '/torch_4711_1'", file=TRAIN),
        ended(code=1).exception("OSError", "[Errno 28] No space left on device: '/data/x'", file=TRAIN),
        ended(9).exception(TYPE, SAID, file=TRAIN),
        recorded(code=0),
        recorded(alive=True),
    ],
    ids=range(6),
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


def test_the_command_is_safe_to_paste(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged())
    assert finding.remedies[0].command == "ls -ld '/data/a b.json'"
    assert "on gpu-07" in finding.remedies[0].text


def test_a_program_is_no_file_of_the_jobs(ask_death: AskDeath) -> None:
    said = "[Errno 2] No such file or directory: 'ninja'"
    (finding,) = ask_death(ID, ended(code=1).exception(TYPE, said, file="/usr/lib/python3.11/subprocess.py"))
    assert finding.summary.startswith("A program that was to be started is not there")
    assert finding.remedies[0].command == "command -v ninja"

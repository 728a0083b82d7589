from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "bad-arguments"
SAID = "unrecognized arguments: --local-rank=0"


def logged(code: int | None = 2, said: str = SAID) -> DeathBuilder:
    return ended(code=code).exception("SystemExit", said)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged())
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == f"The program did not understand its command line: {SAID}."
    assert "torchrun" in (finding.remedies[0].command or "")


@pytest.mark.parametrize(
    "death",
    [
        ended(code=2),
        ended(code=2).exception("TypeError", "main() got an unexpected keyword argument"),
        ended(code=2).exception("ValueError", "bad value"),
        ended(code=2).exception("SystemExit", ""),
        ended(9).exception("SystemExit", SAID),
        logged(0),
    ],
    ids=range(6),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


def test_fires_for_what_all_ranks_printed_alike(ask_death: AskDeath) -> None:
    seen = logged().exception("SystemExit", "unrecognized arguments: --local-rank=1").death.exceptions
    (finding,) = ask_death(ID, ended(code=2, unowned=seen))
    assert finding.confidence is Confidence.LIKELY
    other = logged(2, "another thing").death.exceptions
    assert ask_death(ID, ended(code=2, unowned=[*seen, *other])) == []
    assert ask_death(ID, ended(code=1, unowned=seen)) == []
    assert ask_death("python-exception", ended(code=1, unowned=seen)) == []


def test_missing_evidence_weakens(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged(1))
    assert finding.confidence is Confidence.POSSIBLE
    assert ask_death(ID, logged(None)) == []

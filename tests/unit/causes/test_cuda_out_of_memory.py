from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import TORCH, TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "cuda-out-of-memory"
TYPE = "torch.OutOfMemoryError"
SAID = (
    "CUDA out of memory. Tried to allocate 35.60 GiB. GPU 0 has a total capacity of 79.33 GiB of "
    "which 26.16 GiB is free. Of the allocated memory 11.97 GiB is allocated by PyTorch, and 40.69 "
    "GiB is reserved by PyTorch but unallocated."
)


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(TYPE, SAID, TRAIN, TORCH)


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception(TYPE, SAID, file=TRAIN)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith(
        "GPU memory ran out: OutOfMemoryError: CUDA out of memory. Tried to allocate 35.60 GiB."
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
            "RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
        ),
        ended(code=1).exception("MemoryError", "", file=TRAIN),
        ended(code=1).exception("RuntimeError", "worker failed: CUDA out of memory", file=TRAIN),
        ended(code=1),
        ended(9).exception(TYPE, SAID, file=TRAIN),
        recorded(code=0),
        recorded(alive=True),
    ],
    ids=range(7),
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
        (ended(code=1).exception("RuntimeError", SAID), Confidence.POSSIBLE),
    ],
    ids=range(6),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is confidence


def commands(finding: Finding) -> str:
    return " ".join(remedy.command or "" for remedy in finding.remedies)


def test_the_allocator_is_blamed_only_where_it_holds_what_was_wanted(ask_death: AskDeath) -> None:
    (helps,) = ask_death(ID, logged())
    assert "expandable_segments" in commands(helps)
    assert "40.7 GiB, and 35.6 GiB" in helps.remedies[0].text
    tight = "CUDA out of memory. Tried to allocate 22.78 GiB. 9.35 GiB is reserved by PyTorch but unallocated."
    (no_help,) = ask_death(ID, ended(code=1).exception(TYPE, tight, file=TRAIN))
    assert "expandable_segments" not in commands(no_help)

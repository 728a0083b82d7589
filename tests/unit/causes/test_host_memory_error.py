from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText
from synth.death import TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "host-memory-error"
TYPE = "RuntimeError"
SAID = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 116813856768 bytes. Error code 12 (Cannot allocate memory)"
)


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(TYPE, SAID)


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception(TYPE, SAID, file=TRAIN)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith(
        "The machine refused the process 109 GiB: RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0."
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
        ended(code=1).exception("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", file=TRAIN),
        ended(6).text("cxx-exception", "boom", "std::runtime_error"),
        ended(9).text("cxx-exception", "std::bad_alloc", "std::bad_alloc"),
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
        (ended(code=1).exception(TYPE, SAID), Confidence.POSSIBLE),
    ],
    ids=range(6),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is confidence


def test_fires_for_one_of_cxx_that_nobody_caught(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(6).text("cxx-exception", "std::bad_alloc", "std::bad_alloc"))
    assert finding.cause == ID and finding.confidence is Confidence.LIKELY
    assert finding.summary.endswith("std::bad_alloc was thrown and not caught.")


def test_fires_for_a_record_of_one(ask: Callable[..., list[Finding]]) -> None:
    frames = ("__pthread_kill_implementation", "raise", "abort", "std::terminate()", "__cxa_throw", "grow")
    text = CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242)
    (finding,) = ask(ID, text.set(cxx_exception={"type": "St9bad_alloc", "what": "std::bad_alloc"}), *frames)
    assert finding.confidence is Confidence.PROVEN
    assert ask(ID, text.set(cxx_exception={"type": "St13runtime_error", "what": "boom"}), *frames) == []

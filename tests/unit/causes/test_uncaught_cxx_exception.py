from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText
from synth.death import DeathBuilder, ended, killed

Ask = Callable[..., list[Finding]]
AskDeath = Callable[[str, DeathBuilder], list[Finding]]
TERMINATE = ("__pthread_kill_implementation", "raise", "abort", "std::terminate()", "__cxa_throw", "watchdog")


def abort() -> CrashText:
    return CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242)


def thrown() -> CrashText:
    return abort().set(cxx_exception={"type": "N3c105ErrorE", "what": "NCCL timeout"})


def test_fires_with_the_exceptions_text(ask: Ask) -> None:
    (finding,) = ask("uncaught-cxx-exception", thrown(), *TERMINATE)
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary == "A C++ exception was not caught: c10::Error: NCCL timeout."


@pytest.mark.parametrize(
    "text",
    [
        abort(),
        thrown().signal(11, "SIGSEGV", 1, "SEGV_MAPERR", address=0, access="read"),  # caught and handled, then a fault
        thrown().signal(6, "SIGABRT", 0, "SI_USER", sender=999),
        thrown().set(abort_message={"text": "free(): invalid pointer\n", "source": "glibc"}),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText) -> None:
    assert ask("uncaught-cxx-exception", text) == []


def test_a_text_without_a_type_is_told_and_proves_nothing(ask: Ask) -> None:
    """As for std::rethrow_exception, whose exception object says its type elsewhere."""
    text = abort().set(cxx_exception={"type": "", "what": "NCCL timeout"})
    (finding,) = ask("uncaught-cxx-exception", text, *TERMINATE)
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "A C++ exception was not caught: NCCL timeout."


def test_missing_evidence_weakens(ask: Ask) -> None:
    (no_stack,) = ask("uncaught-cxx-exception", thrown())
    (no_exception,) = ask("uncaught-cxx-exception", abort(), *TERMINATE)
    for finding in (no_stack, no_exception):
        assert finding.confidence is Confidence.LIKELY and finding.unknown


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        # Its handler gave up for another reason: the exception had been caught.
        (thrown(), ("raise", "abort", "std::terminate()", "std::thread::~thread()", "stop")),
        (thrown().set(process=None), TERMINATE),
        (abort(), TERMINATE),
    ],
)
def test_missing_evidence_weakens_what_is_proven(ask: Ask, text: CrashText, frames: tuple[str, ...]) -> None:
    (finding,) = ask("uncaught-cxx-exception", text, *frames)
    assert finding.confidence is Confidence.LIKELY


def test_fires_on_the_text_without_a_record(ask_death: AskDeath) -> None:
    (finding,) = ask_death(
        "uncaught-cxx-exception", ended(6).text("cxx-exception", "boom from C++", "std::runtime_error")
    )
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "A C++ exception was not caught: std::runtime_error: boom from C++."


@pytest.mark.parametrize(
    "death",
    [
        ended(6),
        ended(6).text("cxx-exception", None, None),
        ended(11).text("cxx-exception", "x", "E"),
        killed().text("cxx-exception", "x", "E"),
        ended(6).text("heap", "x"),
    ],
    ids=range(5),
)
def test_near_miss_of_a_death_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death("uncaught-cxx-exception", death) == []


def test_a_bare_terminate_behind_it_takes_nothing_away(ask_death: AskDeath) -> None:
    death = ended(6).text("cxx-exception", "boom from C++", "std::runtime_error").text("cxx-exception", None, None)
    (finding,) = ask_death("uncaught-cxx-exception", death)
    assert "boom from C++" in finding.summary


def test_where_there_is_a_record_it_speaks(ask_death: AskDeath) -> None:
    death = ended(6, crash=Crash(CrashRecord())).text("cxx-exception", "boom from C++", "std::runtime_error")
    assert ask_death("uncaught-cxx-exception", death) == []

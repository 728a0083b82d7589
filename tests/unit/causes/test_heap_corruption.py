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


def abort(message: str | None) -> CrashText:
    text = CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242)
    return text.set(abort_message={"text": message, "source": "glibc"} if message else None)


def test_fires_with_the_allocators_words(ask: Ask) -> None:
    (finding,) = ask("heap-corruption", abort("double free or corruption (!prev)\n"))
    assert finding.confidence is Confidence.LIKELY
    assert "double free or corruption (!prev)" in finding.summary


def test_fires_on_the_allocators_error_path_alone(ask: Ask) -> None:
    (finding,) = ask("heap-corruption", abort(None), "raise", "abort", "__libc_message", "malloc_printerr", "_int_free")
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        (abort("python: a.c:1: f: Assertion `free' failed.\n"), ()),
        (abort("*** stack smashing detected ***: terminated\n"), ()),
        (CrashText().segv(0x28, "read"), ("memcpy", "step")),
        (CrashText().segv(0, "exec"), ("free",)),  # a call into nowhere, not a damaged list
        (CrashText().signal(11, "SIGSEGV", 0, "SI_USER", sender=999), ("malloc",)),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText, functions: tuple[str, ...]) -> None:
    assert ask("heap-corruption", text, *functions) == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    """A fault inside malloc without the allocator's own word is a possibility, no more."""
    (finding,) = ask("heap-corruption", CrashText().segv(0x123456789000, "read"), "_int_malloc", "malloc", "step")
    assert finding.confidence is Confidence.POSSIBLE


def test_fires_on_the_text_without_a_record(ask_death: AskDeath) -> None:
    (finding,) = ask_death("heap-corruption", ended(6).text("heap", "double free or corruption (!prev)"))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "The allocator found its heap damaged: double free or corruption (!prev)."


@pytest.mark.parametrize(
    "death",
    [ended(6), ended(11).text("heap", "x"), killed().text("heap", "x"), ended(6).text("assertion", "x")],
    ids=range(4),
)
def test_near_miss_of_a_death_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death("heap-corruption", death) == []


def test_where_there_is_a_record_it_speaks(ask_death: AskDeath) -> None:
    death = ended(6, crash=Crash(CrashRecord())).text("heap", "double free or corruption (!prev)")
    assert ask_death("heap-corruption", death) == []

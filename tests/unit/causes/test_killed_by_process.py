from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText

Ask = Callable[..., list[Finding]]


def sent(code: int = 0, name: str = "SI_USER", sender: int | None = 999, **more: object) -> CrashText:
    return CrashText().signal(11, "SIGSEGV", code, name, sender=sender, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [(0, "SI_USER"), (-6, "SI_TKILL")])
def test_fires(ask: Ask, code: tuple[int, str]) -> None:
    (finding,) = ask("killed-by-process", sent(*code))
    assert finding.confidence is Confidence.PROVEN
    assert "pid 999" in finding.summary and "did not fault" in finding.summary


def test_the_parent_is_named_as_such(ask: Ask) -> None:
    (finding,) = ask("killed-by-process", sent(sender=4200))
    assert any("parent" in cite.text for cite in finding.supports)


def test_a_sender_outside_the_container(ask: Ask) -> None:
    (finding,) = ask("killed-by-process", sent(sender=0))
    assert "outside" in finding.summary and finding.remedies[0].command is None


@pytest.mark.parametrize(
    "text",
    [
        sent(sender=4242),
        sent(-6, "SI_TKILL", 4242),
        sent(-6, "SI_TKILL", 4242, via="0x7f0000001500"),
        CrashText().segv(0x28, "read"),
        CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText) -> None:
    assert ask("killed-by-process", text) == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    """sigqueue() lets the sender write any pid; without a sender, or without our own pid, nothing is claimed."""
    (queued,) = ask("killed-by-process", sent(-1, "SI_QUEUE"))
    assert queued.confidence is Confidence.LIKELY
    assert ask("killed-by-process", sent(sender=None)) == []
    assert ask("killed-by-process", sent().set(process=None)) == []
    killed = CrashText().signal(9, "SIGKILL", -6, "SI_TKILL", sender=4242)
    assert ask("killed-by-process", killed) == ask("killed-by-process", killed.set(process=None)) == []


def test_missing_evidence_weakens_when_the_thread_raised_a_signal_itself(ask: Ask) -> None:
    text = CrashText().signal(6, "SIGABRT", 0, "SI_USER", sender=999)
    (finding,) = ask("killed-by-process", text, "__pthread_kill_implementation", "raise", "abort")
    assert finding.confidence is Confidence.LIKELY and finding.against

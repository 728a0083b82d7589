from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText

Ask = Callable[..., list[Finding]]


def exiting(state: str = "exiting") -> CrashText:
    text = CrashText().segv(0x28, "read")
    text.members["process"]["python"] = state
    return text


@pytest.mark.parametrize("state", ["exiting", "finalized"])
def test_fires(ask: Ask, state: str) -> None:
    (finding,) = ask("crash-at-exit", exiting(state))
    assert finding.confidence is Confidence.LIKELY
    assert finding.supports[0].locator == "process.python"


def test_fires_on_the_stack_alone(ask: Ask) -> None:
    (finding,) = ask("crash-at-exit", exiting("running"), "unload", "_dl_fini", "__run_exit_handlers", "exit")
    assert finding.confidence is Confidence.LIKELY and "_dl_fini" in finding.supports[0].text


@pytest.mark.parametrize(
    "text",
    [exiting("running"), exiting().signal(11, "SIGSEGV", 0, "SI_USER", sender=999), exiting().set(signal=None)],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText) -> None:
    assert ask("crash-at-exit", text, "exit_code_of", "step") == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    """A word that only looks like a return address is no frame; without state or frame there is no claim."""
    text = exiting("running").set(native=None)
    listed = [{"pc": "0x7f0000001136", "trust": "context"}, {"pc": "0x7f0000001146", "trust": "scan"}]
    text.set(native_scan={"unwinder": "stack-scan", "frames": listed, "complete": True})
    assert ask("crash-at-exit", text, "step", "_dl_fini") == []
    assert ask("crash-at-exit", exiting("running").set(process=None, native=None)) == []

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import PC, CrashText

Ask = Callable[..., list[Finding]]
VADDPS_ZMM = bytes.fromhex("62f17c4858c1")


def illegal(code: bytes = VADDPS_ZMM) -> CrashText:
    return CrashText().signal(4, "SIGILL", 2, "ILL_ILLOPN", address=PC, trap=6).code(code)


def test_fires(ask: Ask) -> None:
    (finding,) = ask("cpu-feature-missing", illegal())
    assert finding.confidence is Confidence.LIKELY
    assert "avx512f" in finding.summary
    assert any(cite.locator == "job.cpu_flags" for cite in finding.supports)


@pytest.mark.parametrize(
    "text",
    [
        illegal(b"\x0f\x0b"),  # ud2: put there by the compiler
        illegal(b"\xff\xff"),
        illegal().segv(0x28, "read"),
        illegal().signal(4, "SIGILL", 0, "SI_USER", sender=999),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText) -> None:
    assert ask("cpu-feature-missing", text) == []


def test_a_processor_that_has_the_feature_rules_it_out(ask: Ask) -> None:
    text = illegal()
    text.members["job"]["cpu_flags"] = "fpu avx avx512f"
    (finding,) = ask("cpu-feature-missing", text)
    assert finding.confidence is Confidence.RULED_OUT and finding.against


def test_missing_evidence_weakens(ask: Ask) -> None:
    text = illegal()
    text.members["job"]["cpu_flags"] = None
    (finding,) = ask("cpu-feature-missing", text)
    assert finding.confidence is Confidence.POSSIBLE and finding.unknown
    assert ask("cpu-feature-missing", illegal().set(code=None)) == []

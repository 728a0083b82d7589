from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText

Ask = Callable[..., list[Finding]]
FULL = {"path": "/dev/shm/torch_1_2", "size": 0x10000, "filesystem": 0x01021994, "free": 0}


def bus(address: int = 0x7F3000002000) -> CrashText:
    return CrashText().signal(7, "SIGBUS", 2, "BUS_ADRERR", address=address, access="write")


def test_fires(ask: Ask) -> None:
    (finding,) = ask("shm-exhausted", bus().set(fault_file=FULL))
    assert finding.confidence is Confidence.LIKELY
    assert any("--shm-size" in (remedy.command or "") for remedy in finding.remedies)


@pytest.mark.parametrize(
    "text",
    [
        bus().set(fault_file={**FULL, "size": 0}),  # cut short, not full
        bus(0x7F2000002000),  # a file on disk
        bus().signal(7, "SIGBUS", 0, "SI_USER", sender=999),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText) -> None:
    assert ask("shm-exhausted", text) == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    (unknown,) = ask("shm-exhausted", bus())
    assert unknown.confidence is Confidence.LIKELY and any(gap.source == "shm" for gap in unknown.unknown)
    (room,) = ask("shm-exhausted", bus().set(fault_file={**FULL, "free": 8 << 30}))
    assert room.confidence is Confidence.POSSIBLE

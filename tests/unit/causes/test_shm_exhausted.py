from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText
from synth.death import TORCH, TRAIN, DeathBuilder, ended

Ask = Callable[..., list[Finding]]
AskDeath = Callable[[str, DeathBuilder], list[Finding]]
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


RAISED = "unable to allocate shared memory(shm) for file </torch_4711_1234567_0>: No space left on device (28)"


@pytest.mark.parametrize(
    ("type", "said"),
    [
        ("RuntimeError", RAISED),
        ("RuntimeError", "unable to write to file </torch_31911_952036340_6686>: No space left on device (28)"),
        ("RuntimeError", "unable to mmap 29764 bytes from file </torch_10182_1_2>: Cannot allocate memory (12)"),
        ("OSError", "[Errno 28] No space left on device: '/dev/shm/batch'"),
    ],
    ids=range(4),
)
def test_fires_for_the_exception_that_torch_makes_of_it(ask_death: AskDeath, type: str, said: str) -> None:
    (logged,) = ask_death("shm-exhausted", ended(code=1).exception(type, said, file=TORCH))
    assert logged.confidence is Confidence.LIKELY and "--shm-size" in (logged.remedies[0].command or "")
    (recorded,) = ask_death("shm-exhausted", ended(code=1, watched=True).raised(type, said, TRAIN, TORCH))
    assert recorded.confidence is Confidence.PROVEN


@pytest.mark.parametrize(
    ("type", "said"),
    [
        ("OSError", "[Errno 28] No space left on device: '/data/torch_1'"),
        ("OSError", "[Errno 28] No space left on device: '/torch_cache/a'"),
        (
            "RuntimeError",
            "unable to open shared memory object </torch_1_2_3> in read-write mode: Too many open files (24)",
        ),
        ("my.Error", RAISED),
    ],
    ids=range(4),
)
def test_near_miss_of_an_exception_stays_quiet(ask_death: AskDeath, type: str, said: str) -> None:
    assert ask_death("shm-exhausted", ended(code=1).exception(type, said, file=TORCH)) == []


def test_missing_evidence_weakens_the_exception(ask_death: AskDeath) -> None:
    (finding,) = ask_death("shm-exhausted", ended(code=1).exception("RuntimeError", RAISED))
    assert finding.confidence is Confidence.POSSIBLE

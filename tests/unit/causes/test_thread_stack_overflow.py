from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from ftforensics.model.ring import Ring, RingEnd, RingProcess
from synth.crash_record import CrashText
from synth.death import DeathBuilder, ended

Ask = Callable[..., list[Finding]]
AskDeath = Callable[..., list[Finding]]
STACK_LOW = 0x7F1000800000


def overflow() -> CrashText:
    return CrashText().segv(STACK_LOW - 8, "write", 2).registers(sp=STACK_LOW).code(b"\x55")


def test_fires_and_names_the_recursion(ask: Ask) -> None:
    (finding,) = ask("thread-stack-overflow", overflow(), *["walk"] * 200)
    assert finding.confidence is Confidence.PROVEN
    assert "recursing in walk" in finding.summary
    locators = {cite.locator for cite in finding.supports}
    assert {"signal.address", "registers.sp", "maps", "code"} <= locators


@pytest.mark.parametrize(
    "text",
    [
        overflow().registers(sp=STACK_LOW + (4 << 20)),  # a stray pointer into the guard
        CrashText().segv(0x28, "read"),
        overflow().set(maps=None),
        overflow().signal(11, "SIGSEGV", 0, "SI_USER", sender=999),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText) -> None:
    assert ask("thread-stack-overflow", text) == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    (finding,) = ask("thread-stack-overflow", overflow().set(code=None))
    assert finding.confidence is Confidence.LIKELY


def test_an_access_beside_the_stack_pointer_is_not_proven(ask: Ask) -> None:
    """mov [rbx],eax into the guard while the stack is full: likely the overflow, but a stray pointer could do it."""
    (finding,) = ask("thread-stack-overflow", overflow().registers(sp=STACK_LOW, rbx=STACK_LOW - 8).code(b"\x89\x03"))
    assert finding.confidence is Confidence.LIKELY


def test_one_large_frame_is_no_recursion(ask: Ask) -> None:
    stack = "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]"
    sp = 0x7FFD00000000 - (9 << 20)
    text = CrashText().segv(sp + 8, "write").registers(sp=sp).code(b"\xc6\x03\x01").set(maps=[stack])
    (finding,) = ask("thread-stack-overflow", text, "load_all")
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "The main thread ran out of stack: one call wanted 9.0 MiB of it."
    assert finding.remedies[0].text == "Take the large array or alloca of load_all (libx.so) off the stack"


def test_the_remedy_fits_the_thread(ask: Ask) -> None:
    (main,) = ask("thread-stack-overflow", overflow())
    text = overflow()
    text.members["process"]["main_thread"] = False
    (other,) = ask("thread-stack-overflow", text)
    assert main.remedies[1].command == "ulimit -s unlimited"
    assert other.remedies[1].command is not None and "stack_size" in other.remedies[1].command


def test_a_fault_without_a_record_makes_it_possible(ask_death: AskDeath) -> None:
    (finding,) = ask_death("thread-stack-overflow", ended(11).set(ring=Ring(RingProcess(18033))))
    assert finding.confidence is Confidence.POSSIBLE


@pytest.mark.parametrize(
    "death",
    [
        ended(11),  # nothing shows that our handlers were there
        ended(6).set(ring=Ring(RingProcess(18033))),
        ended(11).set(ring=Ring(RingProcess(18033), end=RingEnd("crash"))),  # its record is elsewhere
    ],
    ids=["no ring", "abort", "recorded"],
)
def test_near_miss_of_a_death_without_a_record(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death("thread-stack-overflow", death) == []

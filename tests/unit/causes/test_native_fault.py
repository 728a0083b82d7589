from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.basics import Address, Cite
from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import FaultMatch, Match, Tie
from ftforensics.model.diagnosis import Confidence, Finding
from ftforensics.model.kernel import Fault, LogLine
from ftforensics.model.mechanism import Mechanism, MechanismReading
from ftforensics.model.ring import Ring, RingProcess
from synth.crash_record import PC, CrashText
from synth.death import DeathBuilder, ended, killed, unseen

Ask = Callable[..., list[Finding]]
AskDeath = Callable[[str, DeathBuilder], list[Finding]]


def test_fires(ask: Ask) -> None:
    (finding,) = ask("native-fault", CrashText().segv(0x28, "read").python(("train.py", 88, "step")), "step_kernel")
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "SIGSEGV in step_kernel (libx.so): read through a null pointer (address 0x28)."
    assert any("train.py:88 in step" in cite.text for cite in finding.supports)


@pytest.mark.parametrize(
    "text",
    [
        CrashText().segv(0x7F10007FFFF8, "write", 2).registers(sp=0x7F1000800000).code(b"\x55"),
        CrashText().signal(7, "SIGBUS", 4, "BUS_MCEERR_AR", address=0x1000, address_lsb=12),
        CrashText().signal(8, "SIGFPE", 1, "FPE_INTDIV", address=PC),
        CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242),
    ],
)
def test_a_residual_is_never_proven(ask: Ask, text: CrashText) -> None:
    (finding,) = ask("native-fault", text)
    assert finding.confidence is Confidence.LIKELY


def test_the_abort_message_is_in_the_sentence(ask: Ask) -> None:
    text = CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242)
    text.set(abort_message={"text": "python: a.c:1: f: Assertion `n == 8' failed.\n", "source": "glibc"})
    (finding,) = ask("native-fault", text, "raise", "abort", "__assert_fail", "check_ranks")
    assert "n == 8" in finding.summary and "check_ranks" in finding.summary


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        (CrashText().signal(8, "SIGFPE", 3, "FPE_FLTDIV", address=PC), "with traps enabled", "feenableexcept"),
        (CrashText().signal(7, "SIGBUS", 1, "BUS_ADRALN", address=0x7F2000002001), "misaligned", "alignment"),
        (
            CrashText()
            .signal(7, "SIGBUS", 2, "BUS_ADRERR", address=0x7F3000002000)
            .set(maps=["7f3000000000-7f3000200000 rw-p 00000000 00:0f 9   /anon_hugepage (deleted)"]),
            "no huge page",
            "nr_hugepages",
        ),
    ],
)
def test_what_no_mechanism_word_covers(ask: Ask, text: CrashText, said: str, remedy: str) -> None:
    (finding,) = ask("native-fault", text, "step_kernel")
    assert said in finding.summary and remedy in finding.remedies[0].text


def test_a_smashed_stack_is_told(ask: Ask) -> None:
    text = CrashText().signal(11, "SIGSEGV", 0x80, "SI_KERNEL", address=0, trap=13).code(b"\xc3")
    (finding,) = ask("native-fault", text, "copy_name", "main")
    assert finding.summary == (
        "SIGSEGV in copy_name (libx.so): return to a value that cannot be an address: the stack was overwritten."
    )


def test_an_assertion_that_was_not_recorded_is_in_the_log(ask: Ask) -> None:
    text = CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242)
    (finding,) = ask("native-fault", text, "raise", "abort", "std::__glibcxx_assert_fail(char const*)", "pick")
    assert "pick" in finding.summary and "job's log" in finding.remedies[0].text


def test_a_call_through_null_names_the_caller(ask: Ask) -> None:
    (finding,) = ask("native-fault", CrashText().segv(0, "exec").registers(pc=0), "?", "launch")
    assert "launch" in finding.summary


@pytest.mark.parametrize(
    "text",
    [
        CrashText().signal(11, "SIGSEGV", 0, "SI_USER", sender=999),
        CrashText().signal(15, "SIGTERM", 0, "SI_USER", sender=4242),
        CrashText().set(signal=None),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText) -> None:
    assert ask("native-fault", text) == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    """Sent in software, and who sent it was lost: nobody can say that the program faulted."""
    (finding,) = ask("native-fault", CrashText().signal(11, "SIGSEGV", 0, "SI_USER"))
    assert finding.confidence is Confidence.POSSIBLE
    (finding,) = ask("native-fault", CrashText().segv(0x28, "read").set(maps=None, registers=None, native=None))
    assert finding.confidence is Confidence.LIKELY and finding.unknown


# Without a crash record.


def test_fires_on_a_wait_status_alone(ask_death: AskDeath) -> None:
    (finding,) = ask_death("native-fault", ended(11))
    assert finding.confidence is Confidence.LIKELY and finding.summary == "SIGSEGV."
    (finding,) = ask_death("native-fault", ended(code=139))
    assert finding.summary == "SIGSEGV."


def test_handlers_that_could_not_run_are_said(ask_death: AskDeath) -> None:
    (finding,) = ask_death("native-fault", ended(11).set(ring=Ring(RingProcess(18033))))
    assert "no record: it died where our handler could not run" in finding.summary
    assert "--no-preload" in finding.remedies[0].text


def test_the_kernels_line_says_where(ask_death: AskDeath) -> None:
    cite = Cite("kmsg", "kernel.log:3", "python[18033]: segfault at 28 ip ... in libx.so")
    fault = Fault(
        LogLine(cite.text),
        18033,
        "python",
        "segfault",
        ip=Address(0x7F0000001136),
        file="/usr/lib/libx.so",
        map_base=Address(0x7F0000001000),
        map_offset=Address(0x1136),
    )
    reading = MechanismReading(Mechanism.NULL_READ, Address(0x28), supports=(cite,))
    death = ended(11).set(faults=[FaultMatch(fault, Match(Tie.TEXT), cite)], reading=reading)
    (finding,) = ask_death("native-fault", death)
    assert finding.summary == "SIGSEGV in libx.so +0x1136: read through a null pointer (address 0x28)."
    assert finding.supports[0] == cite and finding.confidence is Confidence.LIKELY


def test_a_failed_assertion_in_the_log_is_quoted(ask_death: AskDeath) -> None:
    death = ended(6).text("assertion", "python: a.c:1: f: Assertion `x > 0' failed.")
    (finding,) = ask_death("native-fault", death)
    assert finding.summary == "SIGABRT: python: a.c:1: f: Assertion `x > 0' failed."


@pytest.mark.parametrize(
    "death",
    [killed(), ended(15), ended(code=1), ended(11, alive=True), unseen(), ended(11, crash=Crash(CrashRecord()))],
    ids=range(6),
)
def test_near_miss_of_a_death_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death("native-fault", death) == []


def test_the_end_by_the_cxx_runtime_is_quoted(ask_death: AskDeath) -> None:
    (finding,) = ask_death("native-fault", ended(6).text("cxx-exception", None, None))
    assert finding.summary == (
        "SIGABRT: the C++ runtime ended the program (std::terminate), and no exception is named."
    )

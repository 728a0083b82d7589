from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText
from synth.death import PID, DeathBuilder, ended, killed

Ask = Callable[..., list[Finding]]
AskDeath = Callable[[str, DeathBuilder], list[Finding]]
PYTHON = "/usr/lib/libpython3.11.so.1.0"
ABORT = ("__pthread_kill_implementation", "raise", "abort")


def raised(number: int = 6, name: str = "SIGABRT", code: int = -6, **more: object) -> CrashText:
    code_name = {-6: "SI_TKILL", 0: "SI_USER", -1: "SI_QUEUE"}[code]
    text = CrashText().signal(number, name, code, code_name, sender=4242, **more)
    return text.python(("/work/train.py", 8, "stop"))


@pytest.mark.parametrize(
    ("text", "frames", "says"),
    [
        (raised(), (*ABORT, "os_abort"), "os.abort() was called at train.py:8 in stop()"),
        (raised(11, "SIGSEGV"), ("pthread_kill", "raise", "signal_raise_signal"), "signal.raise_signal() was called"),
        (raised(11, "SIGSEGV", 0), ("kill", "os_kill"), "os.kill() was called"),
    ],
)
def test_fires(ask: Ask, text: CrashText, frames: tuple[str, ...], says: str) -> None:
    (finding,) = ask("raised-by-program", text, *frames, library=PYTHON)
    assert finding.confidence is Confidence.PROVEN
    assert says in finding.summary and "nothing faulted" in finding.summary


def test_a_c_library_that_calls_abort_is_named(ask: Ask) -> None:
    (finding,) = ask("raised-by-program", raised(), *ABORT, "give_up(int)")
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary.startswith("abort() was called by give_up (libx.so)")
    assert "nothing faulted" not in finding.summary


def test_a_timer_of_the_programs_own(ask: Ask) -> None:
    text = CrashText().signal(6, "SIGABRT", -2, "SI_TIMER")
    (finding,) = ask("raised-by-program", text, "pause", "watch")
    assert finding.confidence is Confidence.LIKELY and "a timer that the program set" in finding.summary
    assert ask("native-fault", text, "pause", "watch") == []


def test_terminate_without_an_exception_names_who_called_it(ask: Ask) -> None:
    (finding,) = ask("raised-by-program", raised(), *ABORT, "std::terminate()", "watch(int)")
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary.startswith("std::terminate() was called by watch (libx.so)")
    assert finding.summary.endswith("no exception is recorded.")
    assert any("std::thread" in remedy.text for remedy in finding.remedies)


def test_a_pure_virtual_call_is_explained(ask: Ask) -> None:
    (finding,) = ask("raised-by-program", raised(), *ABORT, "std::terminate()", "__cxa_pure_virtual", "Base::Base()")
    assert "Base::Base (libx.so)" in finding.summary
    assert any("pure virtual" in remedy.text for remedy in finding.remedies)


def test_a_handler_that_raises_again_what_it_caught_is_no_request(ask: Ask) -> None:
    chain = [{"address": "0x7f0000001200", "library": "/usr/lib/libx.so", "offset": "0x1200"}]
    text = raised(11, "SIGSEGV").set(handlers=[{"signal": "SIGSEGV", "ours": True, "previous": chain}])
    assert ask("raised-by-program", text, "pthread_kill", "raise", "on_crash", "really_died") == []


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        (CrashText().segv(0, "read"), ("os_abort",)),  # a fault
        (CrashText().signal(6, "SIGABRT", 0, "SI_USER", sender=999), (*ABORT, "os_abort")),  # somebody else's
        (raised(via=0x7F0000001500), (*ABORT, "os_abort")),  # a handler passed a fault on
        (raised().set(abort_message={"text": "free(): invalid pointer\n", "source": "glibc"}), (*ABORT, "f")),
        (raised().set(abort_message={"text": "*** stack smashing detected ***", "source": "glibc"}), (*ABORT, "f")),
        (raised(), (*ABORT, "__assert_fail", "f")),
        (raised(), (*ABORT, "std::terminate()", "__cxa_throw", "f")),
        (raised(), (*ABORT, "fatal_error", "Py_FatalError")),
        (raised().set(process={"pid": None}), (*ABORT, "os_abort")),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText, frames: tuple[str, ...]) -> None:
    assert ask("raised-by-program", text, *frames) == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    (finding,) = ask("raised-by-program", raised(code=-1), *ABORT, "os_abort", library=PYTHON)
    assert finding.confidence is Confidence.LIKELY, "with SI_QUEUE the sender may write any pid"
    (finding,) = ask("raised-by-program", raised(11, "SIGSEGV").set(native=None))
    assert finding.confidence is Confidence.LIKELY
    assert ask("raised-by-program", raised().set(native=None)) == [], "every abort() looks like this"
    (finding,) = ask("raised-by-program", raised(), *ABORT, "os_abort")
    assert finding.confidence is Confidence.LIKELY, "a function of that name outside the interpreter"


def test_fires_on_a_kill_that_it_sent_itself(ask_death: AskDeath) -> None:
    (finding,) = ask_death("raised-by-program", killed().sent("python", PID))
    assert finding.confidence is Confidence.PROVEN and finding.summary == "The program sent itself SIGKILL."
    (finding,) = ask_death("raised-by-program", ended(15).signal(15, PID))
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        killed().sent("bash"),
        ended(15).signal(15, 4000),
        ended(2).signal(2, PID),
        ended(6).sent("python", PID),
    ],
    ids=range(5),
)
def test_near_miss_of_a_death_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death("raised-by-program", death) == []

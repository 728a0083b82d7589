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


# As recorded of a rank of torch 2.13 that called sys.exit(3) while a gloo thread let go of its tensors.
CUT_OFF = (
    "__pthread_kill_implementation", "raise", "abort", "std::terminate()", "__gxx_personality_v0",
    "_Unwind_ForcedUnwind", "__GI___pthread_unwind", "pthread_exit", "PyThread_exit_thread", "take_gil",
    "pybind11::gil_scoped_acquire::gil_scoped_acquire()", "c10d::ProcessGroupGloo::runLoop(int)",
)  # fmt: skip


def test_a_thread_that_python_cut_off_in_the_middle_of_cxx(ask: Ask) -> None:
    text = CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242)
    text.members["process"]["python"] = "exiting"
    (finding,) = ask("crash-at-exit", text, *CUT_OFF)
    assert "Python ended a thread that was still running C++ code" in finding.summary
    assert any("PyThread_exit_thread" in cite.text for cite in finding.supports)
    assert ask("uncaught-cxx-exception", text, *CUT_OFF) == []

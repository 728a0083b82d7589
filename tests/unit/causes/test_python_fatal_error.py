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
PYTHON = "/usr/lib/libpython3.11.so.1.0"
FATAL = ("raise", "abort", "fatal_error.cold", "_Py_FatalErrorFunc")


def abort() -> CrashText:
    return CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242).python(("/work/train.py", 8, "step"))


def test_fires(ask: Ask) -> None:
    (finding,) = ask("python-fatal-error", abort(), *FATAL, "PyThreadState_Get", library=PYTHON)
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == (
        "Python gave up with a fatal error at train.py:8 in step(): Python was called without holding the GIL."
    )
    assert finding.unknown[0].source == "stderr"


def test_the_interpreter_that_faults_while_it_gives_up(ask: Ask) -> None:
    """As it was recorded with 3.12.1 and 3.13.0: the signal is SIGSEGV then, and Python has printed its reason."""
    frames = ("_PyObject_Free", "_PyFaulthandler_Fini", "fatal_error", "_Py_FatalErrorFunc")
    (finding,) = ask("python-fatal-error", CrashText().segv(0x10, "read"), *frames, library=PYTHON)
    assert finding.confidence is Confidence.LIKELY and "without the GIL" in finding.summary


@pytest.mark.parametrize(
    ("text", "frames", "library"),
    [
        (abort(), ("raise", "abort", "os_abort"), PYTHON),
        (abort(), FATAL, "/usr/lib/libx.so"),  # not Python's
        (abort().set(abort_message={"text": "free(): invalid pointer", "source": "glibc"}), FATAL, PYTHON),
        (CrashText().segv(0, "read"), FATAL, PYTHON),
        (abort(), ("raise", "abort", "_PyEval_EvalFrameDefault", "Py_FatalError"), PYTHON),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText, frames: tuple[str, ...], library: str) -> None:
    assert ask("python-fatal-error", text, *frames, library=library) == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    (finding,) = ask("python-fatal-error", abort(), *FATAL, library=PYTHON)
    assert finding.summary.endswith("a fatal error at train.py:8 in step().")
    assert ask("python-fatal-error", abort().set(native=None)) == []


def test_fires_on_the_text_without_a_record(ask_death: AskDeath) -> None:
    (finding,) = ask_death("python-fatal-error", ended(6).text("fatal-python-error", "none_dealloc: deallocating None"))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "Python gave up with a fatal error: none_dealloc: deallocating None."


@pytest.mark.parametrize(
    "death",
    [
        ended(6),
        ended(6).text("fatal-python-error", "Aborted"),
        ended(11).text("fatal-python-error", "Segmentation fault"),
        killed().text("fatal-python-error", "x"),
    ],
    ids=range(4),
)
def test_near_miss_of_a_death_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death("python-fatal-error", death) == []


def test_where_there_is_a_record_it_speaks(ask_death: AskDeath) -> None:
    death = ended(6, crash=Crash(CrashRecord())).text("fatal-python-error", "none_dealloc: deallocating None")
    assert ask_death("python-fatal-error", death) == []

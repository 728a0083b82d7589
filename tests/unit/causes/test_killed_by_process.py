from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText
from synth.death import PID, DeathBuilder, ended, killed, unseen

Ask = Callable[..., list[Finding]]
AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "killed-by-process"


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


# Without a crash record: traced, or seen by the recorder.


def test_fires_on_a_traced_sender_of_a_kill(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().sent("bash", 4000))
    assert finding.confidence is Confidence.PROVEN and finding.summary == "SIGKILL was sent by bash (pid 4000)."


def test_fires_on_what_the_recorder_saw(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(15).signal(15, 4000, comm="bash"))
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary == "SIGTERM was sent by bash (pid 4000, uid 0)."


def test_a_parent_is_named_as_such_without_a_record_too(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().sent("timeout", 4000, role="parent"))
    assert finding.summary == "SIGKILL was sent by its parent process, timeout (pid 4000)."


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        killed(traced=True),
        killed().sent("torchrun", role="launcher"),
        killed().sent("python", by_kernel=True),  # the kernel's own: out of memory, processor time
        killed().sent("python", PID),  # to itself
        killed().sent("bash", signal=15),  # another signal, not said to be this end's
        killed().sent("earlyoom"),
        killed().sent("slurmstepd").notice("slurm", "time-limit"),
        killed().sent("timeout", role="parent").parent_died(),
        ended(15).signal(15, 4000, role="launcher"),
        ended(2).signal(2, None, code=128),  # Ctrl-C
        ended(15).signal(15, PID),
        ended(code=1).signal(15, 4000, fatal=False),
        killed(alive=True).sent("bash"),
    ],
    ids=range(14),
)
def test_near_miss_of_a_death_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().sent("bash", 4000, Tie.STRONG), Confidence.LIKELY),
        (killed().sent("bash", 4000, Tie.WEAK), Confidence.POSSIBLE),
        (killed().sent("bash", 4000, Tie.EXACT, "another name"), Confidence.LIKELY),
        (killed().sent("bash").oom("memcg"), Confidence.LIKELY),  # the kernel says that it killed it
        (ended(15).signal(15, 4000, code=-1), Confidence.LIKELY),  # sigqueue: the pid is the sender's own word
        (ended(15).signal(15, 0), Confidence.LIKELY),  # from outside: nobody is named
        (ended(15, given=True).signal(15, 4000), Confidence.LIKELY),
        (unseen().signal(15, 4000), Confidence.LIKELY),  # nobody saw the end
        (killed().signal(15, 4000, before=10.0), Confidence.POSSIBLE),  # the polite signal only
    ],
    ids=range(9),
)
def test_missing_evidence_weakens_a_death(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]


def test_a_signal_long_before_the_kill_says_nothing(ask_death: AskDeath) -> None:
    assert ask_death(ID, killed().signal(15, 4000, before=3600.0)) == []


def test_fires_for_a_launcher_that_ended_itself_because_it_was_told_to(ask_death: AskDeath) -> None:
    agent = ended(code=1).raised("x.SignalException", "Process 4 got signal: 15", hook="torchrun record")
    (finding,) = ask_death("killed-by-process", agent.sent("bash", signal=15))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "SIGTERM was sent by bash (pid 4000), and the program ended itself."
    (noted,) = ask_death("killed-by-process", agent.signal(15, comm="bash"))
    assert noted.confidence is Confidence.LIKELY
    assert ask_death("killed-by-process", agent) == []
    assert ask_death("killed-by-process", agent.sent("pt_elastic", signal=15, role="launcher")) == []
    assert ask_death("killed-by-process", agent.sent("bash", signal=10)) == []

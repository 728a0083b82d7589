from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "host-oom"


def test_fires_on_the_kernels_own_record(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().oom("host").memory(30, None, available=3))
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary == "Killed by the kernel: the whole machine (1000 GiB) was out of memory."


def test_fires_when_the_counters_say_killed_and_no_limit_was_reached(ask_death: AskDeath) -> None:
    death = killed().counter("oom_kill", 0, 1).counter("oom", 0, 0).counter("oom", 0, 0, own=False)
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.LIKELY


def test_fires_when_nothing_was_available_at_a_recent_look(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().memory(30, None, available=5))
    assert finding.confidence is Confidence.LIKELY
    assert "the machine's memory (1000 GiB) was 100% used" in finding.summary


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(15).oom("host"),
        killed().oom("memcg"),
        killed().oom("cpuset"),
        killed().memory(30, 64, available=400),
        killed().counter("vmstat oom_kill", 5, 6),  # somebody was killed on this machine: not known to be this one
        killed().counter("vmstat oom_kill", 5, 6).other_oom(),
        killed().other_oom().other_oom(901),
    ],
    ids=range(8),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().oom("host", Tie.STRONG), Confidence.LIKELY),
        (killed().oom("host", Tie.WEAK), Confidence.POSSIBLE),
        (killed().oom("host", facility=3), Confidence.POSSIBLE),
        (killed().oom("host").counter("vmstat oom_kill", 5, 5), Confidence.POSSIBLE),
        (killed().memory(30, None, available=5, age=4.0), Confidence.POSSIBLE),
        (killed().counter("vmstat oom_kill", 5, 6).memory(30, None, available=5).other_oom(), Confidence.POSSIBLE),
        (killed().counter("vmstat oom_kill", 5, 5), Confidence.RULED_OUT),
    ],
    ids=range(7),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    assert [finding.confidence for finding in ask_death(ID, death)] == [confidence]


def test_a_line_that_names_no_limit_leaves_both(ask_death: AskDeath) -> None:
    bare = killed().oom(None)
    assert [one.confidence for one in ask_death(ID, bare)] == [Confidence.LIKELY]
    assert [one.confidence for one in ask_death("cgroup-oom", bare)] == [Confidence.LIKELY]
    unlimited = bare.memory(30, None)
    assert ask_death("cgroup-oom", unlimited) == [] and len(ask_death(ID, unlimited)) == 1
    full = bare.memory(63, 64)
    assert ask_death(ID, full) == [] and len(ask_death("cgroup-oom", full)) == 1


def test_a_machine_with_much_room_is_said_against_it(ask_death: AskDeath) -> None:
    counted = killed().counter("oom_kill", 0, 1).memory(40, 64, available=900)
    (finding,) = ask_death(ID, counted)
    assert finding.confidence is Confidence.POSSIBLE
    assert any("memory of this machine: 100 GiB of 1000 GiB" in cite.text for cite in finding.against)

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.causes.registry import Kind, find_cause
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "killed-unknown"


@pytest.mark.parametrize(
    ("death", "said"),
    [
        (killed(), "Killed by SIGKILL; who sent it is not known."),
        (ended(15), "Ended by SIGTERM; who sent it is not known."),
        (ended(code=137), "Exit status 137, which stands for SIGKILL; who sent it is not known."),
        (ended(code=247), "Exit status 247, which stands for SIGKILL; who sent it is not known."),
    ],
)
def test_fires(ask_death: AskDeath, death: DeathBuilder, said: str) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.summary == said
    assert finding.confidence is Confidence.POSSIBLE, "the residual is undecided, never likely"


def test_it_is_a_residual() -> None:
    cause = find_cause(ID)
    assert cause is not None and cause.kind is Kind.RESIDUAL


@pytest.mark.parametrize(
    "death", [ended(11), ended(6), ended(code=1), ended(code=0), ended(code=139), unseen(), killed(alive=True)]
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


def test_missing_evidence_weakens_nothing_but_is_listed(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().gap())
    assert [gap.source for gap in finding.unknown] == ["kmsg"]


def test_the_cheapest_look_comes_first(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed())
    first, second, third = finding.remedies
    assert first.settles and first.command == 'journalctl -k --since "2025-11-29 16:39:00 UTC" | grep -i killed'
    assert second.settles and second.command == "sacct -j 4411 -o JobID,State,ExitCode,MaxRSS"
    assert third.command == "ftforensics run -- COMMAND..."


def test_a_look_that_was_made_already_is_not_asked_for(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed(groups=[], traced=True).counter("vmstat oom_kill", 5, 5))
    assert finding.remedies == []


def test_a_container_is_asked_about(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed(groups=[], container="4a" * 32))
    assert any("docker inspect 4a4a4a4a4a4a" in (remedy.command or "") for remedy in finding.remedies)


def test_what_narrows_it_down_is_shown(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().memory(58, 64).sent("python", by_kernel=True))
    assert any("58 GiB of 64 GiB" in cite.text for cite in finding.supports)
    assert any("code=128" in cite.text for cite in finding.supports)

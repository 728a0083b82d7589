from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.basics import Cite
from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed, unseen

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "cgroup-oom"


def test_fires_on_the_kernels_own_record(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().oom("memcg"))
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary == "Killed by the kernel: the memory limit of /slurm/job_4411 (64 GiB) was reached."
    assert "Killed process 18033" in finding.supports[0].text and "limit 67108864kB" in finding.supports[1].text
    assert finding.against == [] and "80 GiB (now 64 GiB)" in finding.remedies[0].text


def test_fires_on_the_groups_own_counters(ask_death: AskDeath) -> None:
    death = killed().counter("oom_kill", 0, 1).counter("oom", 0, 2).memory()
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.LIKELY  # which member it was, they do not say
    assert any(cite.text == "oom_kill 0 -> 1" for cite in finding.supports)
    assert any("63.9 GiB of 64 GiB (100%), 64 ms before" in cite.text for cite in finding.supports)


@pytest.mark.parametrize("authority", ["slurm", "kubernetes", "docker"])
def test_fires_when_the_unit_is_said_to_have_been_oom_killed(ask_death: AskDeath, authority: str) -> None:
    (finding,) = ask_death(ID, killed().notice(authority, "oom"))
    assert finding.confidence is Confidence.LIKELY


def test_fires_on_a_full_group_at_a_recent_look(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().memory(63.9, 64, age=1.5))
    assert finding.confidence is Confidence.LIKELY
    assert "was 100% used" in finding.summary and "the kernel" not in finding.summary
    assert finding.remedies[-1].settles and "journalctl" in (finding.remedies[-1].command or "")


@pytest.mark.parametrize(
    "death",
    [
        killed(),
        ended(code=137),
        ended(code=1).oom("memcg"),
        ended(15).oom("memcg"),
        ended(11).memory(),
        killed(alive=True).oom("memcg"),
        killed().oom("host"),
        killed().oom("memcg", own=False),
        killed().oom("memcg", chosen=False),
        killed().memory(30, 64),
        killed().memory(63, 64, age=60),  # full, but a minute ago, and not growing: only possible
        killed().notice("slurm", "limit-hit"),
        killed().other_oom(),
    ],
    ids=range(13),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (killed().oom("memcg", Tie.TEXT), Confidence.PROVEN),
        (killed().oom("memcg", Tie.STRONG), Confidence.LIKELY),
        (killed().oom("memcg", Tie.WEAK), Confidence.POSSIBLE),
        (killed().oom("memcg", Tie.EXACT, "uid 1001, the process had 0"), Confidence.LIKELY),
        (killed().oom("memcg", Tie.STRONG, "pid 438 looks like one of a container"), Confidence.POSSIBLE),
        (killed().oom("memcg", own=None), Confidence.LIKELY),  # a bare line: whose limit?
        (unseen().oom("memcg"), Confidence.PROVEN),  # the kernel names it; nobody need have waited for it
        (killed().counter("oom_kill", 0, 1).counter("oom", 0, 1), Confidence.LIKELY),  # nobody watched all members
        (killed().counter("oom_kill", 0, 1), Confidence.LIKELY),  # which limit?
        (killed(died_together=8).counter("oom_kill", 0, 1).counter("oom", 0, 1), Confidence.POSSIBLE),
        (killed(role="root", died_together=8).counter("oom_kill", 0, 1).counter("oom", 0, 1), Confidence.LIKELY),
        (killed().counter("oom_kill", 0, 1, bracketing=False).counter("oom", 0, 1), Confidence.LIKELY),
        (killed().memory(63.9, 64, age=2.5), Confidence.POSSIBLE),  # too old
        (killed().memory(60, 64, age=1.0, growth=5.0), Confidence.POSSIBLE),  # only a curve
        (killed().memory(63.9, 64, cache=40), Confidence.POSSIBLE),  # page cache is given back first
        (unseen().memory(63.9, 64), Confidence.POSSIBLE),  # no wait status: not known to be killed
        (killed().notice("slurm", "oom", alone=False), Confidence.POSSIBLE),
    ],
    ids=range(17),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    found = ask_death(ID, death)
    assert [finding.confidence for finding in found] == [confidence]


@pytest.mark.parametrize(
    ("death", "said"),
    [
        (killed().oom("memcg").counter("vmstat oom_kill", 5, 5), "vmstat oom_kill 5 -> 5"),
        (killed().oom("memcg").counter("oom_kill", 0, 0), "oom_kill 0 -> 0"),
        (killed().oom("memcg", facility=1), "a program wrote this line"),
        (killed().notice("kubernetes", "oom").counter("oom_kill", 0, 0), "oom_kill 0 -> 0"),
        (killed().memory().sent("bash"), "bash-4000"),
        (killed().memory().ended_by("torchrun", 9), "closing signal"),
        (killed().memory().other_oom(900), "(pid 900)"),
    ],
    ids=range(7),
)
def test_what_contradicts_it_caps_it_at_possible(ask_death: AskDeath, death: DeathBuilder, said: str) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.POSSIBLE
    assert any(said in cite.text for cite in finding.against)


def test_the_group_that_it_had_left_does_not_count_against_it(ask_death: AskDeath) -> None:
    """A rank that a wrapper puts into a group of its own: the recorder and `run` know the one that it began in."""
    moved = killed().oom("memcg", victim_group="/user/limited", limit_group="/user/limited")
    (finding,) = ask_death(ID, moved.counter("oom_kill", 0, 0))
    assert finding.confidence is Confidence.PROVEN and not finding.against
    # The whole machine's counter counts it wherever it was; and a line that is tied by its text moves nobody.
    (finding,) = ask_death(ID, moved.counter("vmstat oom_kill", 5, 5))
    assert finding.confidence is Confidence.POSSIBLE
    told = killed().oom("memcg", Tie.TEXT, victim_group="/user/limited", limit_group="/user/limited")
    (finding,) = ask_death(ID, told.counter("oom_kill", 0, 0))
    assert finding.confidence is Confidence.POSSIBLE


def test_a_traced_sender_takes_the_proof_away(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().oom("memcg").sent("bash"))
    assert finding.confidence is Confidence.LIKELY and any("bash" in cite.text for cite in finding.against)


@pytest.mark.parametrize(
    "death",
    [
        killed().counter("vmstat oom_kill", 5, 5),
        killed().counter("oom_kill", 0, 0).memory(),
        killed(kernel_log_covers=True),
        killed(kernel_log_covers=True).other_oom(),
    ],
    ids=range(4),
)
def test_what_excludes_it_is_cited(ask_death: AskDeath, death: DeathBuilder) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is Confidence.RULED_OUT and finding.against and not finding.remedies


@pytest.mark.parametrize(
    "death",
    [
        killed().counter("vmstat oom_kill", 5, 5, bracketing=False),  # read before the end
        killed(kernel_log_covers=False),
        killed(kernel_log_covers=None).gap(),
    ],
    ids=range(3),
)
def test_a_partial_look_excludes_nothing(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []
    (finding,) = ask_death(ID, DeathBuilder(death.death).memory())
    assert finding.confidence is Confidence.LIKELY


def test_victim_and_consumer_are_told_apart(ask_death: AskDeath) -> None:
    gib = 1 << 30
    death = killed().oom("memcg", tasks=[(18033, "python", 2 * gib), (777, "ffmpeg", 50 * gib)], anon_rss=2 * gib)
    (finding,) = ask_death(ID, death)
    assert any("ffmpeg (pid 777) held more, 50 GiB against 2 GiB" in cite.text for cite in finding.supports)
    assert any("ffmpeg" in remedy.text for remedy in finding.remedies)
    (finding,) = ask_death(ID, killed().oom("memcg", tasks=[(18033, "python", 61 * gib), (777, "ffmpeg", gib)]))
    assert not any("held more" in cite.text for cite in finding.supports)


def test_the_workers_that_hold_more_than_the_rank_are_said(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().memory().children(16, 2.5))
    assert any("its 16 children held 40 GiB, itself 3 GiB" in cite.text for cite in finding.supports)
    assert any("DataLoader" in remedy.text for remedy in finding.remedies)


def test_a_save_gets_the_remedy_of_a_save(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, killed().memory(phase="train > save_checkpoint").oom("memcg"))
    assert any("Save on one rank" in remedy.text for remedy in finding.remedies)


def test_a_death_that_nobody_saw_needs_a_short_memory_beside_the_counter(ask_death: AskDeath) -> None:
    counted = unseen().counter("oom_kill", 0, 1).counter("oom", 0, 1)
    assert [one.confidence for one in ask_death(ID, counted)] == [Confidence.POSSIBLE]
    assert [one.confidence for one in ask_death(ID, counted.memory())] == [Confidence.LIKELY]
    together = counted.counter("oom_group_kill", 0, 1)
    assert [one.confidence for one in ask_death(ID, together)] == [Confidence.LIKELY]


def test_srun_names_the_task_behind_the_steps_count(ask_death: AskDeath) -> None:
    """Of several tasks that have this status it does not say which one was killed."""
    for tasks, confidence in ((1, Confidence.LIKELY), (4, Confidence.POSSIBLE)):
        death = unseen().notice("slurm", "oom", Tie.STRONG, count=1).notice("slurm", "oom", Tie.STRONG, tasks=tasks)
        counted, task = death.death.notices
        line = Cite("slurm", "job.log:2", "srun: error: n07: ...: Out Of Memory")
        task = msgspec.structs.replace(task, notice=msgspec.structs.replace(task.notice, cite=line))
        ending = [msgspec.structs.replace(line, source="launcher")]
        (finding,) = ask_death(
            ID, DeathBuilder(msgspec.structs.replace(death.death, ending=ending, notices=[counted, task]))
        )
        assert finding.confidence is confidence

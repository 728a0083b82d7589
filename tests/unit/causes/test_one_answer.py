"""All causes together: which one becomes the verdict, where several have something to say about one death."""

from __future__ import annotations

import itertools

import pytest

from ftforensics.causes.registry import causes
from ftforensics.diagnose.verdict import Weighed, weigh
from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import PID, DeathBuilder, ended, killed, unseen


def judge(builder: DeathBuilder) -> Weighed:
    death = builder.death
    found = [(one, finding) for one in causes() if one.check_death for finding in one.check_death(death)]
    return weigh(death, found)


@pytest.mark.parametrize(
    ("death", "cause", "confidence"),
    [
        # -9 alone, and with what only looks like an answer
        (killed(), "killed-unknown", "undecided"),
        (ended(code=137), "killed-unknown", "undecided"),
        (ended(code=247), "killed-unknown", "undecided"),
        (killed().other_oom(), "killed-unknown", "undecided"),
        (killed().counter("vmstat oom_kill", 5, 6).other_oom(), "killed-unknown", "undecided"),
        (killed().counter("vmstat oom_kill", 5, 6), "killed-unknown", "undecided"),
        (killed().counter("vmstat oom_kill", 5, 5), "killed-unknown", "undecided"),
        (killed().memory(60, 64, growth=5.0, age=1.0), "killed-unknown", "undecided"),
        (killed().sent("python", by_kernel=True), "killed-unknown", "undecided"),
        (killed().oom("memcg", facility=1), "killed-unknown", "undecided"),
        (killed().oom("memcg", Tie.WEAK), "killed-unknown", "undecided"),
        (killed().oom("memcg").counter("oom_kill", 0, 0), "killed-unknown", "undecided"),
        (killed().signal(15, 0, before=10.2), "killed-unknown", "undecided"),
        (killed().parent_died(), "killed-unknown", "undecided"),
        (killed().notice("slurm", "limit-hit"), "killed-unknown", "undecided"),
        (unseen(), None, "undecided"),
        (unseen().memory(), None, "undecided"),
        # one thing is known
        (killed().oom("memcg"), "cgroup-oom", "proven"),
        (killed().notice("kubernetes", "oom"), "cgroup-oom", "likely"),
        (killed().sent("bash"), "killed-by-process", "proven"),
        (killed(cpu_limit_hard=60).used_cpu(60.2), "cpu-time-limit", "likely"),
        (ended(2).signal(2, None, code=128), "interrupted", "proven"),
        (ended(1), "terminal-hangup", "likely"),
        (ended(11), "native-fault", "likely"),
        (ended(code=1), "exit-code", "likely"),
        (ended(6).text("cxx-exception", "boom", "std::runtime_error"), "uncaught-cxx-exception", "likely"),
        # several have something to say
        (killed().memory().sent("bash"), "killed-by-process", "proven"),
        (killed().oom("memcg").ended_by("deepspeed", None), "cgroup-oom", "proven"),
        (killed().oom("memcg").notice("slurm", "oom").memory(), "cgroup-oom", "proven"),
        (killed().oom("memcg").notice("slurm", "time-limit", before=None), "cgroup-oom", "proven"),
        (killed().memory().notice("slurm", "time-limit"), "scheduler-time-limit", "proven"),
        (ended(15).signal(15, 777).notice("slurm", "time-limit"), "scheduler-time-limit", "proven"),
        (killed().memory().notice("slurm", "time-limit", Tie.STRONG), "scheduler-time-limit", "likely"),
        (killed().sent("torchrun", role="launcher").notice("slurm", "time-limit"), "scheduler-time-limit", "likely"),
        (
            ended(15).signal(15, 17987, role="launcher").notice("slurm", "time-limit"),
            "scheduler-time-limit",
            "proven",
        ),
        (killed().notice("slurm", "time-limit").notice("slurm", "requeued"), "scheduler-time-limit", "proven"),
        (killed().notice("kubernetes", "evicted").notice("kubernetes", "stopped"), "kubernetes-eviction", "proven"),
        (killed().notice("earlyoom", "killed").signal(15, 777, before=3.0), "earlyoom", "proven"),
        (ended(15).notice("earlyoom", "killed").signal(15, 777), "earlyoom", "proven"),
        (killed().notice("systemd-oomd", "killed").notice("systemd", "killed"), "systemd-oomd", "proven"),
        (killed().notice("docker", "stopped", before=10.2).signal(15, 0, before=10.2), "container-stopped", "proven"),
        (ended(15, role="collateral").notice("slurm", "stopped"), "launcher-teardown", "likely"),
        (killed().sent("python", role="parent").parent_died(), "parent-died", "likely"),
        (ended(2).signal(2, None, code=128, before=0.2).signal(2, PID), "interrupted", "proven"),
        # a tie stays one
        (killed().oom("memcg").sent("bash"), None, "undecided"),
        (killed().oom(None), None, "undecided"),
    ],
    ids=range(46),
)
def test_the_answer(death: DeathBuilder, cause: str | None, confidence: str) -> None:
    verdict = judge(death).verdict
    assert (verdict.cause, verdict.confidence) == (cause, confidence), verdict.summary


def test_a_tie_is_said_as_one() -> None:
    assert judge(killed().oom(None)).verdict.summary.startswith("It was cgroup-oom or host-oom")


NO_AUTHORITY = {
    "full": lambda death: death.memory(),
    "counter that nobody compared": lambda death: death.counter("oom_kill", 0, 1).counter("oom", 0, 1),
    "machine's counter": lambda death: death.counter("vmstat oom_kill", 5, 6),
    "similar kernel record": lambda death: death.oom("memcg", Tie.STRONG),
    "forged kernel record": lambda death: death.oom("memcg", facility=1),
    "another's kernel record": lambda death: death.other_oom(),
    "similar sender": lambda death: death.sent("bash", 4000, Tie.STRONG),
    "line of a scheduler": lambda death: death.notice("slurm", "time-limit", Tie.STRONG),
    "job's state": lambda death: death.notice("slurm", "cancelled", Tie.TEXT, before=None, reason="by 0"),
    "oom notice": lambda death: death.notice("kubernetes", "oom"),
    "launcher's line": lambda death: death.ended_by("torchrun", 9),
    "parent gone": lambda death: death.parent_died(),
    "processor time": lambda death: death.set(cpu_limit_hard=60).used_cpu(60.2),
    "polite signal": lambda death: death.signal(15, 4000, before=10.2),
}


@pytest.mark.parametrize("names", list(itertools.combinations(NO_AUTHORITY, 2)), ids=" and ".join)
def test_nothing_is_proven_without_an_authority_that_names_this_process(names: tuple[str, str]) -> None:
    death = killed()
    for name in names:
        death = NO_AUTHORITY[name](death)
    weighed = judge(death)
    proven: list[Finding] = [one for one in weighed.hypotheses if one.confidence is Confidence.PROVEN]
    assert weighed.verdict.confidence != "proven" and proven == []


EXCLUDED = {
    "machine's counter": lambda death: death.counter("vmstat oom_kill", 5, 5),
    "group's counter": lambda death: death.counter("oom_kill", 0, 0),
    "whole log": lambda death: death.set(kernel_log_covers=True),
}


@pytest.mark.parametrize("name", EXCLUDED)
def test_what_excludes_a_kill_for_memory_leaves_no_such_verdict(name: str) -> None:
    for base in (killed(), killed().memory(), killed().memory(30, None, available=5), killed().other_oom().memory()):
        weighed = judge(EXCLUDED[name](base))
        assert weighed.verdict.cause == "killed-unknown"
        ruled_out = {one.cause for one in weighed.hypotheses if one.confidence is Confidence.RULED_OUT}
        assert {"cgroup-oom", "ancestor-cgroup-oom", "host-oom", "numa-oom", "oom-group-kill"} <= ruled_out

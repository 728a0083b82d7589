"""Whom the OOM killer has killed, from records as they come."""

from __future__ import annotations

import pytest

from ftforensics.parsers.kmsg_oom import OomVictim, OomVictims

CHOSEN = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/slurm/job_4411,task_memcg=/slurm/job_4411/step_0,task=python,pid=18033,uid=1000"
)
KILLED = "Memory cgroup out of memory: Killed process 18033 (python) total-vm:283040kB, anon-rss:244496kB, UID:0"


def record(text: str, prio: int = 3) -> str:
    return f"{prio},4711,39188632294,-;{text}"


def test_the_group_whose_limit_it_was() -> None:
    victims = OomVictims()
    assert victims.feed(record(CHOSEN, 6)) is None  # chosen is not yet killed
    assert victims.feed(record(KILLED)) == OomVictim(18033, "group", "/slurm/job_4411")


def test_without_the_line_before_only_what_the_line_says() -> None:
    assert OomVictims().feed(record(KILLED)) == OomVictim(18033, "group", None)
    old = "Killed process 7 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB"  # up to 5.0
    assert OomVictims().feed(record(old)) == OomVictim(7)
    oldest = "Killed process 7, UID 0, (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB"  # 3.10 of RHEL 7
    assert OomVictims().feed(record(oldest)) == OomVictim(7)


def test_the_machine() -> None:
    victims = OomVictims()
    line = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,"
    victims.feed(record(line + "task=x,pid=9,uid=0"))
    assert victims.feed(record("Out of memory: Killed process 9 (x) total-vm:1kB")) == OomVictim(9, "machine")
    # another member of the same group, by memory.oom.group: the line before was not about it
    assert victims.feed(record("Memory cgroup out of memory: Killed process 8 (x) total-vm:1kB")) == OomVictim(
        8, "group"
    )


@pytest.mark.parametrize(
    "written",
    [
        f"12,1,1,-;{KILLED}",  # facility 1: somebody wrote it into /dev/kmsg (kernel/printk/printk.c)
        KILLED,
        f"3,1,1,-;x {KILLED}",
        "3,1,1,-;Memory cgroup out of memory: Kill process 18033 (python) score 9 or sacrifice child",
        "3,1,1,-;Killed process x (python)",
        "<overrun>",
        "",
    ],
)
def test_what_is_not_the_kernels_line(written: str) -> None:
    assert OomVictims().feed(written) is None


def test_a_path_that_can_be_read_in_two_ways_names_no_group() -> None:
    victims = OomVictims()
    victims.feed(record(CHOSEN.replace("cpuset=/,", "cpuset=/x,oom_memcg=/innocent,task_memcg=/y,")))
    assert victims.feed(record(KILLED)) == OomVictim(18033, "group", None)


def test_a_task_named_like_the_fields_does_not_move_the_pid() -> None:
    victims = OomVictims()
    victims.feed(record(CHOSEN.replace("task=python", "task=,pid=1,uid=0,")))
    assert victims.feed(record(KILLED)) == OomVictim(18033, "group", "/slurm/job_4411")

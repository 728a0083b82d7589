"""The memory controller's files, version 1 as on 6.18 and version 2 as on 6.1, and anything at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers import cgroup_files
from ftforensics.parsers.cgroup_files import MemoryEvents, MemoryGroup, MemoryStat
from ftforensics.parsers.proc_files import Mount


def test_version_1_hybrid_and_version_2_lines() -> None:
    one = MemoryGroup(1, "/slurm/uid_1000/job_7/step_0")
    two = MemoryGroup(2, "/user.slice/a:b")
    assert cgroup_files.memory_groups(["0::/user.slice/a:b", "9:cpu,memory:/slurm/uid_1000/job_7/step_0"]) == [one, two]
    assert cgroup_files.memory_groups(["0::/user.slice/a:b\n"]) == [two]
    assert cgroup_files.memory_groups(["3:cpu:/x", "1:name=systemd:/y", "", "4:memory", "5:memory:x"]) == []


def test_a_removed_group_says_so() -> None:
    assert cgroup_files.memory_groups(["0::/job (deleted)"]) == [MemoryGroup(2, "/job", removed=True)]


def test_the_fullest_view_of_a_hierarchy_first() -> None:
    part = Mount("/docker/x", "/sys/fs/cgroup/memory", "cgroup", ("rw", "memory"))
    whole = Mount("/", "/host/memory", "cgroup", ("rw", "memory"))
    other = Mount("/", "/host/cpu", "cgroup", ("rw", "cpu"))
    unified = Mount("/", "/host/unified", "cgroup2", ("rw",))
    assert cgroup_files.hierarchy([part, other, unified, whole], 1) == [whole, part]
    assert cgroup_files.hierarchy([part, other, unified, whole], 2) == [unified]


def test_amounts() -> None:
    assert cgroup_files.amount("67108864\n") == 67108864
    assert cgroup_files.amount("max\n") is None
    assert cgroup_files.amount("9223372036854771712\n") is None  # x86-64; with 64 KiB pages ...754775...
    assert cgroup_files.amount("9223372036854710272\n") is None


def test_version_1_counts_what_is_below_as_its_usage_does() -> None:
    text = "cache 5\nrss 1\nshmem 2\nhierarchical_memory_limit 9\ntotal_cache 50\ntotal_rss 10\ntotal_shmem 20\n"
    assert cgroup_files.stat_v1(text) == MemoryStat(anon=10, file=50, shmem=20, swap=None)
    assert cgroup_files.kills_v1("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n") == 2
    assert cgroup_files.kills_v1("oom_kill_disable 0\nunder_oom 0\n") is None


def test_version_2() -> None:
    assert cgroup_files.stat_v2("anon 10\nfile 50\nkernel 3\nshmem 20\n") == MemoryStat(10, 50, 20)
    text = "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\n"
    assert cgroup_files.events(text) == MemoryEvents(max=31, oom=2, oom_kill=1, oom_group_kill=None)


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_no_text_makes_a_parser_raise(text: str) -> None:
    cgroup_files.memory_groups(text.split("\n"))
    cgroup_files.amount(text)
    cgroup_files.stat_v1(text)
    cgroup_files.stat_v2(text)
    cgroup_files.events(text)
    cgroup_files.kills_v1(text)

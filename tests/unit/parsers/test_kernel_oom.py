"""OOM reports of every generation, whole and mangled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ftforensics.model.kernel import KernelLog, OomKill
from ftforensics.parsers.kernel_log import read_kernel_log
from synth.kernel_text import COLUMNS, KERNELS, PYTHON, SHELL, WORKER, OomText, Process, records, stamped


def kills(log: KernelLog) -> list[OomKill]:
    return [event for event in log.events if isinstance(event, OomKill)]


def only(data: bytes) -> OomKill:
    (kill,) = kills(read_kernel_log(data))
    return kill


def test_the_builder_has_every_table_and_more_than_thirteen_generations() -> None:
    assert len(KERNELS) >= 13
    assert {kernel.columns for kernel in KERNELS.values()} - {None} == set(COLUMNS)


@pytest.mark.parametrize("version", KERNELS)
def test_a_cgroup_report_of_each_generation(version: str) -> None:
    text = OomText(kernel=KERNELS[version])
    page = text.kernel.page
    log = read_kernel_log(stamped(["usb 1-1: reset", *text.lines(), "usb 1-1: reset"]))
    (kill,) = kills(log)
    assert log.oom_blocks == 1
    assert (kill.pid, kill.comm, kill.scope, kill.chosen) == (4711, "python3", "memcg", True)
    assert (kill.trigger_pid, kill.trigger_comm, kill.kernel) == (4720, "pt_data_worker", text.kernel.release)
    assert (kill.usage, kill.limit, kill.failcnt) == (4 << 30, 4 << 30, 99)
    assert (kill.swap_usage, kill.swap_limit) == (0, 0)
    assert kill.limit_group == "/slurm/uid_1000/job_7"
    assert kill.victim_group == "/slurm/uid_1000/job_7/step_0"
    assert kill.header is not None and kill.header.number == 2
    assert kill.limits is not None and kill.limits.text.startswith("memory: usage")
    assert kill.constraint is not None and "job_7" in kill.constraint.text
    if version != "2.6.18":  # it says neither sizes nor a table
        assert kill.uid == 1000
        assert kill.total_vm == 2_000_000 * page
        assert (kill.anon_rss, kill.file_rss) == (900_000 * page, 5_000 * page)
        assert kill.shmem_rss == (700 * page if text.kernel.shmem else None)
        assert kill.oom_score_adj == 3
        assert [task.pid for task in kill.tasks] == [4600, 4720, 4711]
        own = kill.tasks[2]
        assert (own.name, own.uid, own.tgid, own.total_vm, own.rss) == (
            "python3",
            1000,
            4711,
            2_000_000 * page,
            905_700 * page,
        )
        assert own.oom_score_adj == 3
        assert own.swap == (None if version == "2.6.32" else 11 * page)
        assert own.rss_anon == (900_000 * page if text.kernel.columns == "6.8" else None)


@pytest.mark.parametrize("version", KERNELS)
def test_a_whole_machine_report_of_each_generation(version: str) -> None:
    kill = only(stamped(OomText(kernel=KERNELS[version], limit_group=None, victim_group="/user.slice").lines()))
    assert (kill.pid, kill.scope, kill.limit_group, kill.usage, kill.limits) == (4711, "host", None, None, None)
    assert kill.victim_group == ("/user.slice" if KERNELS[version].constraint else None)


@pytest.mark.parametrize(
    ("word", "scope"), [("CPUSET", "cpuset"), ("MEMORY_POLICY", "mempolicy"), ("BPF_PSI_MEM", "BPF_PSI_MEM")]
)
def test_constraints_known_and_unknown(word: str, scope: str) -> None:
    kill = only(stamped(OomText(limit_group=None, word=word, nodemask="1").lines()))
    assert (kill.scope, kill.nodemask) == (scope, "1")


def test_a_kernel_without_memory_cgroups() -> None:
    line = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,task=python3,pid=4711,uid=1000"
    kill = only(stamped([OomText().header(), line, OomText(limit_group=None).killed(PYTHON)]))
    assert (kill.scope, kill.cpuset, kill.victim_group, kill.limit_group, kill.uid) == ("host", "/", None, None, 1000)


def test_no_limit_is_not_a_number() -> None:
    kill = only(stamped(OomText(limit=9007199254740988).lines()))
    assert kill.usage == 4 << 30
    assert kill.limit is None


@pytest.mark.parametrize("swap", [(100, 4000)])
@pytest.mark.parametrize("version", ["4.19", "6.18"])
def test_swap_of_both_hierarchies(version: str, swap: tuple[int, int]) -> None:
    kill = only(stamped(OomText(kernel=KERNELS[version], swap=swap).lines()))
    assert (kill.swap_usage, kill.swap_limit) == (100 << 10, 4000 << 10)


@pytest.mark.parametrize("comm", ["weird na]e(x) 1", "a,b,pid=9,uid=7", "(sd-pam)", "x) total-vm:1kB", "  sp ", "é€"])
def test_a_program_may_be_called_anything(comm: str) -> None:
    named = replace(PYTHON, name=comm)
    text = OomText(victim=named, trigger=named, members=(WORKER,))
    for data in (stamped(text.lines()), records(text.lines())):
        kill, member = kills(read_kernel_log(data))
        assert (kill.pid, kill.comm, kill.trigger_comm, kill.uid) == (4711, comm, comm, 1000)
        assert kill.tasks[-1].name == comm
        assert kill.trigger_pid == 4711
        assert member.pid == 4720


def test_bytes_that_are_no_text_stay_readable_and_distinct() -> None:
    data = stamped(OomText().lines()).replace(b"(python3)", b"(p\xff\x01)")
    assert only(data).comm == "p\\xff\\x01"
    raw = records(OomText().lines()).replace(b"(python3)", b"(p\\xff\\x01)")
    assert only(raw).comm == "p\\xff\\x01"


@pytest.mark.parametrize("version", ["3.10", "4.15", "6.18"])
def test_a_bare_victim_line_is_a_kill(version: str) -> None:
    text = OomText(kernel=KERNELS[version])
    log = read_kernel_log(stamped(["usb 1-1: reset", text.killed(PYTHON), text.killed(WORKER)]))
    assert [(kill.pid, kill.scope) for kill in kills(log)] == [
        (4711, "memcg" if text.kernel.reason_on_victim else None),
        (4720, "memcg" if text.kernel.reason_on_victim else None),
    ]
    assert all(kill.limit is None and kill.tasks == [] and kill.header is None and kill.chosen for kill in kills(log))
    assert log.oom_blocks == 0


@pytest.mark.parametrize("version", [name for name, kernel in KERNELS.items() if kernel.columns])
def test_a_log_that_begins_inside_the_table(version: str) -> None:
    text = OomText(kernel=KERNELS[version])
    lines = text.lines()
    first = next(n for n, line in enumerate(lines) if "total_vm" in line)
    kill = only(stamped(lines[first + 2 :]))
    assert kill.pid == 4711
    assert [task.pid for task in kill.tasks] == [4720, 4711]
    assert (kill.tasks[0].name, kill.tasks[0].rss) == ("pt_data_worker", 64_090 * text.kernel.page)
    assert kill.tasks[0].oom_score_adj == 0
    assert (kill.header, kill.trigger_comm, kill.limits) == (None, None, None)
    if text.kernel.constraint:
        assert kill.limit_group == "/slurm/uid_1000/job_7"


def test_cut_anywhere_at_the_front_the_kill_stays_and_nothing_is_wrong() -> None:
    for version in ("3.10", "4.19", "5.0", "6.18"):
        text = OomText(kernel=KERNELS[version])
        whole = only(stamped(text.lines()))
        for skipped in range(len(text.lines())):
            kill = only(stamped(text.lines()[skipped:]))
            assert (kill.pid, kill.comm) == (4711, "python3")
            for name in ("scope", "usage", "limit", "limit_group", "victim_group", "uid", "trigger_pid"):
                assert getattr(kill, name) in (None, getattr(whole, name)), (version, skipped, name)


def test_group_kill_first_victim_printed_twice() -> None:
    third = replace(WORKER, pid=4721)
    text = OomText(members=(WORKER, third), others=(SHELL, WORKER, third))
    found = kills(read_kernel_log(stamped(text.lines())))
    assert [(kill.pid, kill.chosen, kill.group_kill) for kill in found] == [
        (4711, True, text.victim_group),
        (4720, False, text.victim_group),
        (4721, False, text.victim_group),
    ]
    assert {kill.limit for kill in found} == {4 << 30}
    assert {kill.scope for kill in found} == {"memcg"}


def test_group_kill_whose_report_was_rate_limited() -> None:
    text = OomText(members=(WORKER,))
    start = next(n for n, line in enumerate(text.lines()) if "Killed process" in line)
    log = read_kernel_log(stamped(text.lines()[start:]))
    assert [(kill.pid, kill.chosen, kill.group_kill, kill.tasks) for kill in kills(log)] == [
        (4711, True, text.victim_group, []),
        (4720, False, text.victim_group, []),
    ]


def test_a_kill_after_a_group_kill_that_is_no_member() -> None:
    """The group's table is whole and does not hold it: a rate-limited kill of another cgroup."""
    stranger = replace(PYTHON, pid=9999, name="other")
    text = OomText(members=(WORKER,))
    first, member, last = kills(read_kernel_log(stamped([*text.lines(), text.killed(stranger)])))
    assert (first.group_kill, member.group_kill) == (text.victim_group, text.victim_group)
    assert (last.pid, last.group_kill, last.limit_group, last.chosen, last.tasks) == (9999, None, None, True, [])


def test_the_candidate_is_spared_and_its_child_dies() -> None:
    text = OomText(kernel=KERNELS["4.19"])
    lines = [
        line.replace("Killed process 4711 (python3)", "Killed process 4720 (pt_data_worker)") for line in text.lines()
    ]
    kill = only(stamped(lines))
    assert (kill.pid, kill.comm, kill.scope, kill.limit) == (4720, "pt_data_worker", "memcg", 4 << 30)


def test_tasks_that_share_the_victims_memory_die_too() -> None:
    text = OomText(kernel=KERNELS["3.10"])
    first, sharer = kills(read_kernel_log(stamped([*text.lines(), "Kill process 4712 (vfork) sharing same memory"])))
    assert (first.pid, first.chosen) == (4711, True)
    assert (sharer.pid, sharer.comm, sharer.chosen, sharer.limit) == (4712, "vfork", False, 4 << 30)


def test_a_victim_that_was_exiting_anyway_is_no_kill() -> None:
    text = OomText()
    lines = text.lines()[:-1]
    lines.append("Memory cgroup out of memory: OOM victim 4711 (python3) is already exiting. Skip killing the task")
    log = read_kernel_log(stamped(lines))
    assert kills(log) == []
    assert log.oom_blocks == 1


def test_the_reaper_and_suspend_are_no_kills() -> None:
    lines = [
        "oom_reaper: reaped process 4711 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "OOM killer disabled.",
        "OOM killer enabled.",
        "Out of memory and no killable processes...",
    ]
    assert read_kernel_log(stamped(lines)).events == []


def test_two_reports_that_print_at_once_are_joined_by_pid_and_by_nothing_else() -> None:
    other = Process(5000, "java", total_vm=9_000, anon=800, file=7, uid=33)
    a = OomText()
    b = OomText(victim=other, trigger=other, limit_group="/other", victim_group="/other", usage=10, limit=10, others=())
    one, two = a.lines(), b.lines()
    mixed = [line for pair in zip(one, [*two, *[""] * (len(one) - len(two))], strict=True) for line in pair if line]
    first, second = sorted(kills(read_kernel_log(stamped(mixed))), key=lambda kill: kill.pid)
    assert (first.pid, first.limit_group, first.uid) == (4711, "/slurm/uid_1000/job_7", 1000)
    assert (second.pid, second.limit_group, second.uid) == (5000, "/other", 33)
    for kill in (first, second):  # whose "memory: usage" and whose rows nobody can say
        assert (kill.usage, kill.limit, kill.tasks, kill.limits) == (None, None, [], None)


def test_two_reports_that_print_at_once_are_told_apart_by_the_printing_task() -> None:
    other = Process(5000, "java", total_vm=9_000, anon=800, file=7, uid=33)
    a = OomText().lines()
    b = OomText(victim=other, trigger=other, limit_group="/b", victim_group="/b", usage=10, limit=10, others=()).lines()
    said = []
    for n in range(max(len(a), len(b))):
        for lines, caller in ((a, "T4720"), (b, "T5000")):
            if n < len(lines):
                said.append(f"[  573.{622186 + n:06d}][{caller:>7}] {lines[n]}\n")
    first, second = sorted(kills(read_kernel_log("".join(said).encode())), key=lambda kill: kill.pid)
    assert (first.pid, first.limit, first.limit_group) == (4711, 4 << 30, "/slurm/uid_1000/job_7")
    assert (second.pid, second.limit, second.limit_group) == (5000, 10 << 10, "/b")


def test_a_lost_victim_line_spoils_nothing_of_the_next_report() -> None:
    lost = OomText(victim=replace(PYTHON, pid=1)).lines()[:3]
    kill = only(stamped([*lost, *OomText().lines()]))
    assert (kill.pid, kill.usage, kill.limit) == (4711, 4 << 30, 4 << 30)
    assert len(kill.tasks) == 3


def test_others_talk_inside_a_report() -> None:
    lines = [part for line in OomText().lines() for part in (line, "usb 1-1: reset high-speed USB device")]
    kill = only(stamped(lines))
    assert (kill.limit, len(kill.tasks), kill.trigger_pid) == (4 << 30, 3, 4720)


def test_a_report_of_many_nodes_and_processes_in_a_large_log() -> None:
    """Beyond the size that is read line by line: the table is found although nothing marks its rows."""
    many = tuple(Process(10_000 + n, f"w{n}", 1000 + n, 10, 5) for n in range(5000))
    text = OomText(others=many, limit_group=None)
    lines = text.lines()
    at = lines.index("Mem-Info:")
    lines[at:at] = [f"Node {n} Normal free:44kB min:44kB" for n in range(900)]
    noise = [f"usb 1-1: reset {n}" for n in range(60_000)]
    log = read_kernel_log(stamped([*noise, *lines, *noise]))
    (kill,) = kills(log)
    assert kill.line.number == len(noise) + len(lines)
    assert len(kill.tasks) == 5001
    assert log.lines == len(noise) * 2 + len(lines)


def test_the_same_log_pasted_twice_is_one_kill() -> None:
    assert len(kills(read_kernel_log(stamped(OomText().lines()) * 2))) == 1


def test_the_same_pid_killed_again_is_another_kill() -> None:
    """Pids come round again within hours on a busy node."""
    data = stamped(OomText().lines()) + stamped(OomText().lines(), at=90_000.0)
    assert [kill.line.moment.monotonic for kill in kills(read_kernel_log(data))] == pytest.approx(
        [573.6223, 90_000.0], abs=1
    )


def test_words_that_only_look_like_a_kill() -> None:
    lines = [
        "python: Killed process 12 (x) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
        "node-agent[7]: saw Out of memory: Killed process 12 (x)",
        "Killed process none (x)",
        "Killed process 12",
        "Killed process 12 (x",
    ]
    assert kills(read_kernel_log(stamped(lines))) == []

"""Is a kernel record about this process? Pids repeat, ranks look alike, and other jobs are killed as well."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ftforensics.diagnose.matching import match_fault, match_oom, name_fits, own_group
from ftforensics.model.death import Death, Tie
from ftforensics.model.kernel import Fault, KernelLog, LogLine, OomKill
from ftforensics.model.moment import Moment
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.model.ring import FastSample, Ring, RingProcess, SlowSample

BOOT, OTHER_BOOT = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"
GIB = 1 << 30


def at(seconds: float, boot: str | None = BOOT) -> Moment:
    return Moment(monotonic=seconds, boot_id=boot)


def kill(pid: int = 4242, comm: str = "python", when: float = 100.0, **changes: Any) -> OomKill:
    line = LogLine(f"Killed process {pid} ({comm})", 7, facility=changes.pop("facility", 0), moment=at(when))
    base = OomKill(line, pid, comm, scope="memcg", anon_rss=2 * GIB, total_vm=5 * GIB)
    return msgspec.structs.replace(base, **changes)


def kernel(live: bool = True, boot: str | None = BOOT, **changes: Any) -> KernelLog:
    return msgspec.structs.replace(KernelLog("kmsg", "/dev/kmsg", live, boot), **changes)


def ring(anon: int = 2 * GIB, vm: int = 5 * GIB, last: float = 99.9, **process: Any) -> Ring:
    return Ring(
        RingProcess(4242, boot_id=BOOT, **process),
        last=last,
        fast=[FastSample(last - 1.0, anon // 2), FastSample(last, anon)],
        slow=[SlowSample(last, vm_size=vm)],
    )


def recorded(**changes: Any) -> Death:
    """A process with a ring, in the initial pid namespace, whose end nobody saw."""
    base = Death(
        pid=4242, host_pids=[4242], initial_namespace=True, boot_id=BOOT, comms=["python"], uid=0, ring=ring(),
        earliest=at(99.9),
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def launched(**changes: Any) -> Death:
    """A process that only a launcher's text names."""
    return msgspec.structs.replace(Death(pid=4242, host_pids=[4242], comms=["python"], signal=9), **changes)


def contained(**changes: Any) -> Death:
    """A process in a pid namespace of its own: it knows itself as pid 1, the kernel calls it otherwise."""
    return recorded(pid=1, host_pids=[], initial_namespace=False, **changes)


def test_the_same_pid_of_the_same_boot_at_the_same_time_is_exact() -> None:
    match = match_oom(kill(), kernel(), recorded())
    assert match is not None and match.tie is Tie.EXACT and match.sure
    assert any("0.10 s after the last sign of life" in cite.text for cite in match.why)


@pytest.mark.parametrize(
    ("what", "log"),
    [
        ("another boot", kernel(boot=OTHER_BOOT)),
        ("another host", KernelLog("file", "messages", host="gpu-08")),
    ],
)
def test_evidence_of_another_machine_or_boot_is_no_candidate(what: str, log: KernelLog) -> None:
    assert match_oom(kill(), log, recorded(host="gpu-07.cluster")) is None


def test_a_live_log_says_nothing_about_a_text_without_a_boot() -> None:
    assert match_oom(kill(), kernel(), launched()) is None


def test_a_kill_before_the_last_sample_was_of_an_earlier_process_with_this_pid() -> None:
    assert match_oom(kill(when=50.0), kernel(), recorded()) is None


def test_a_kill_long_after_the_last_sign_of_life_speaks_against_itself() -> None:
    match = match_oom(kill(when=900.0), kernel(), recorded())
    assert match is None or not match.sure


def test_another_pid_in_the_initial_namespace_is_somebody_else_however_alike() -> None:
    assert match_oom(kill(pid=4243), kernel(), recorded()) is None


def test_a_line_that_a_program_wrote_is_not_sure() -> None:
    match = match_oom(kill(facility=1), kernel(), recorded())
    assert match is not None and not match.sure
    assert any("not by the kernel" in cite.text for cite in match.against)


def test_a_process_that_ended_otherwise_was_not_killed_for_memory() -> None:
    assert match_oom(kill(), kernel(), recorded(signal=11)) is None
    assert match_oom(kill(), kernel(), recorded(code=1)) is None


def test_sizes_that_do_not_continue_the_samples_speak_against() -> None:
    match = match_oom(kill(anon_rss=1 << 20), kernel(), recorded())
    assert match is not None and not match.sure
    assert any("anon-rss 1 MiB, last sample 2.00 GiB" in cite.text for cite in match.against)


def test_another_name_and_another_user_speak_against() -> None:
    match = match_oom(kill(comm="postgres"), kernel(), recorded())
    assert match is not None and not match.sure
    match = match_oom(kill(uid=1000), kernel(), recorded())
    assert match is not None and not match.sure


# --- two texts --------------------------------------------------------------------------------------------------------


def test_two_texts_with_the_same_pid_and_a_fitting_name() -> None:
    match = match_oom(kill(), KernelLog("file", "kernel.log"), launched())
    assert match is not None and match.tie is Tie.TEXT and match.sure


def test_a_pid_that_only_a_container_gives_out_is_not_sure() -> None:
    match = match_oom(kill(pid=38), KernelLog("file"), launched(pid=38, host_pids=[38]))
    assert match is not None and not match.sure


def test_a_text_without_a_status_is_not_enough() -> None:
    match = match_oom(kill(), KernelLog("file"), launched(signal=None))
    assert match is not None and match.tie is Tie.STRONG


# --- pid namespaces ---------------------------------------------------------------------------------------------------


def test_in_a_namespace_name_sizes_and_time_tie_it() -> None:
    match = match_oom(kill(pid=13030), kernel(), contained())
    assert match is not None and match.tie is Tie.STRONG and not match.against


def test_in_a_namespace_the_same_number_means_nothing() -> None:
    # The kernel's 4242 is another process than the container's.
    death = contained(comms=["python"], ring=ring(anon=GIB // 8, vm=GIB))
    assert match_oom(kill(pid=1, anon_rss=40 * GIB, total_vm=90 * GIB), kernel(), death) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"comm": "java"},
        {"uid": 1000},
        {"anon_rss": 1 << 20},
        {"total_vm": 100 * GIB},
        {"when": 50.0},
        {"when": 300.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_in_a_namespace_one_thing_that_does_not_fit_is_somebody_else(changes: dict[str, Any]) -> None:
    assert match_oom(kill(pid=13030, **changes), kernel(), contained()) is None


def test_in_a_cgroup_namespace_the_limit_tells_a_neighbours_kill() -> None:
    """Every group calls itself "/" there."""

    def limited(limit: int | None) -> Death:
        reading = Reading(at(99.0), "ring", groups=[GroupReading("/", 2, limit=limit)])
        held = ring()
        return contained(groups=["/"], ring=msgspec.structs.replace(held, slow=[SlowSample(99.0, reading, 5 * GIB)]))

    own = kill(pid=13030, victim_group="/theirs", limit_group="/theirs", limit=3 * GIB)
    assert match_oom(own, kernel(), limited(3 * GIB)) is not None
    assert match_oom(own, kernel(), limited(4 * GIB)) is None
    assert match_oom(own, kernel(), limited(None)) is None
    above = kill(pid=13030, victim_group="/slice/ours", limit_group="/slice", limit=9 * GIB)
    assert match_oom(above, kernel(), limited(4 * GIB)) is not None  # a limit that cannot be seen from there


def test_the_container_decides_between_two_that_look_alike() -> None:
    ours, theirs = "a" * 64, "b" * 64
    death = contained(container=ours, groups=[f"/docker/{ours}", "/docker", "/"])
    match = match_oom(kill(pid=13030, victim_group=f"/docker/{ours}"), kernel(), death)
    assert match is not None and match.tie is Tie.STRONG
    assert match_oom(kill(pid=13030, victim_group=f"/docker/{theirs}"), kernel(), death) is None
    assert match_oom(kill(pid=13030, cpuset=theirs), kernel(), death) is None


def test_without_sizes_and_container_it_is_only_a_possibility() -> None:
    match = match_oom(kill(pid=13030, anon_rss=None, total_vm=None), kernel(), contained())
    assert match is not None and match.tie is Tie.WEAK


# --- which limit ------------------------------------------------------------------------------------------------------

ID = "c" * 64


@pytest.mark.parametrize(
    ("limit", "victim", "started_in", "own"),
    [
        ("/ftjob", "/ftjob", None, True),
        ("/a", "/a/b", None, False),
        ("/a/b", "/a", None, None),  # not above it: the record is odd
        ("/slurm/uid_1/job_7", "/slurm/uid_1/job_7/step_0/task_1", None, True),
        ("/slurm/uid_1", "/slurm/uid_1/job_7/step_0", None, False),
        ("/system.slice/slurmstepd.scope/job_7", "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", None, True),
        ("/kubepods/burstable/pod12345678-abcd", f"/kubepods/burstable/pod12345678-abcd/{ID}", None, True),
        ("/kubepods/burstable", f"/kubepods/burstable/pod12345678-abcd/{ID}", None, False),
        (
            "/kubepods.slice/kubepods-burstable.slice",
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12345678_ab.slice/cri-containerd-{ID}.scope",
            None,
            False,
        ),
        (f"/docker/{ID}", f"/docker/{ID}/sub", None, True),
        ("/user.slice", "/user.slice/user-0.slice/session-3.scope", None, False),
        ("/system.slice/train.service", "/system.slice/train.service/worker", None, True),
        ("/batch", "/batch/rank0", "/batch", True),  # the group that `run` was started in
        ("/batch", "/batch/rank0", "/batch/rank0", False),
        ("/a", "/a/b", "/", False),
        ("/", "/a", None, False),
        (None, "/a", None, None),
    ],
)
def test_own_limit_or_one_above(limit: str | None, victim: str, started_in: str | None, own: bool | None) -> None:
    assert own_group(kill(limit_group=limit, victim_group=victim), Death(), started_in) is own


# --- names and faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "kernel_name", "fits"),
    [
        (["python"], "python", True),
        (["python3.11"], "pt_main_thread", True),
        (["python"], "pt_data_worker", True),
        (["train_a_very_long_name"], "train_a_very_lo", True),
        (["python"], "postgres", False),
        (["bash"], "python", False),
        ([], "anything", True),
    ],
)
def test_names(known: list[str], kernel_name: str, fits: bool) -> None:
    assert name_fits(kernel_name, Death(comms=known)) is fits


def test_a_fault_is_tied_by_the_thread_that_the_kernel_names() -> None:
    line = LogLine("python[4242]: segfault", 1)
    fault = Fault(line, 4242, "python", "segfault")
    assert match_fault(fault, KernelLog("file"), launched(signal=11)) is not None
    assert match_fault(fault, KernelLog("file"), launched(signal=9)) is None
    other = msgspec.structs.replace(fault, tid=4243)
    assert match_fault(other, KernelLog("file"), launched(signal=11)) is None


# --- a log without the time of an end, and a record of long ago -------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "record", "contradicted"),
    [
        ({"told_wall": 1_795_997_173.0}, 1_590_980_400.0, True),  # 2026-11-30 against 2020-06-01
        ({"told_wall": 1_795_997_173.0}, 1_795_997_170.0, False),
        ({"told_day": 334 * 86400.0}, 1_791_763_200.0, True),  # 11-30 against 2026-10-12
        ({"told_day": 334 * 86400.0}, 1_795_997_170.0, False),
        ({"told_day": 3600.0}, 1_798_758_000.0, False),  # 01-01 01:00 against 12-31 23:00
    ],
)
def test_a_later_line_of_the_log_dates_an_end(told: dict[str, float], record: float, contradicted: bool) -> None:
    log = kernel(live=False, boot=None, source="dmesg")
    found = match_oom(msgspec.structs.replace(kill(), line=dated(record)), log, launched(**told))
    assert found is not None
    assert bool(found.against) is contradicted


def dated(realtime: float) -> LogLine:
    return LogLine("Killed process 4242 (python)", 7, facility=0, moment=Moment(realtime=realtime, accuracy=1.0))

"""Memory counters: version 1, version 2 and both, every level, groups that are gone, and a real OOM kill."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from conditions import needs_cgroup_v1_memory, needs_root
from ftforensics.host.host import Host
from ftforensics.model.moment import Moment
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.sources.counters import read_counters

if TYPE_CHECKING:
    from conftest import AsNobody, Eater, Files

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
NOW = Moment(realtime=1.0)


def v2_group(files: Files, path: str, top: str = "/sys/fs/cgroup", **values: str) -> None:
    """A group of Linux 6.1."""
    texts = {
        "memory.current": "900\n",
        "memory.max": "max\n",
        "memory.high": "max\n",
        "memory.peak": "950\n",
        "memory.swap.current": "7\n",
        "memory.stat": "anon 600\nfile 250\nshmem 50\n",
        "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
        "memory.events.local": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
        "cgroup.procs": "",
    }
    texts.update({name.replace("__", "."): text for name, text in values.items()})
    for name, text in texts.items():
        files.write(f"{top}{path}/{name}", text)


def v1_group(files: Files, path: str, top: str = "/sys/fs/cgroup/memory", **values: str) -> None:
    texts = {
        "memory.usage_in_bytes": "900\n",
        "memory.limit_in_bytes": "9223372036854771712\n",
        "memory.max_usage_in_bytes": "950\n",
        "memory.failcnt": "0\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
        "memory.stat": "rss 1\ntotal_rss 600\ntotal_cache 250\ntotal_shmem 50\ntotal_swap 7\n",
        "cgroup.procs": "12\n13\n",
    }
    texts.update({name.replace("__", "."): text for name, text in values.items()})
    for name, text in texts.items():
        files.write(f"{top}{path}/{name}", text)


def cgroup_gaps(machine: Host, *lines: str) -> tuple[Reading, list[str]]:
    reading, gaps = read_counters(machine, list(lines), NOW)
    return reading, [gap.why for gap in gaps if gap.source == "cgroup"]


def test_version_2_the_whole_chain(files: Files, machine: Host) -> None:
    files.write("/proc/self/mountinfo", V2_MOUNT)
    v2_group(
        files,
        "/kubepods/pod1",
        memory__max="1000\n",
        memory__events="max 9\noom 2\noom_kill 1\noom_group_kill 0\n",
        memory__events__local="max 9\noom 1\noom_kill 0\noom_group_kill 0\n",
    )
    v2_group(files, "/kubepods/pod1/main", cgroup__procs="7\n", memory__events="max 0\noom 0\noom_kill 1\n")
    files.folder("/sys/fs/cgroup/kubepods")  # no memory controller below this one
    reading, gaps = cgroup_gaps(machine, "0::/kubepods/pod1/main")
    assert gaps == []
    own, pod = reading.groups
    inode = os.stat(files.root / "sys/fs/cgroup/kubepods/pod1").st_ino
    assert pod == GroupReading(
        path="/kubepods/pod1",
        version=2,
        usage=900,
        limit=1000,
        high=None,
        peak=950,
        anon=600,
        file=250,
        shmem=50,
        swap=7,
        oom=2,
        oom_kill=1,
        oom_group_kill=0,
        local_oom=1,
        local_oom_kill=0,
        max_events=9,
        processes=0,
        inode=inode,
    )
    assert (own.path, own.limit, own.oom, own.oom_kill, own.oom_group_kill, own.processes) == (
        "/kubepods/pod1/main",
        None,
        0,
        1,
        None,
        1,
    )


def test_version_2_without_newer_files(files: Files, machine: Host) -> None:
    """Linux 4.18 has neither memory.peak nor memory.events.local."""
    files.write("/proc/self/mountinfo", V2_MOUNT)
    v2_group(files, "/job")
    for name in ("memory.peak", "memory.events.local", "memory.swap.current"):
        (files.root / "sys/fs/cgroup/job" / name).unlink()
    reading, gaps = cgroup_gaps(machine, "0::/job")
    assert gaps == []
    assert (reading.groups[0].peak, reading.groups[0].local_oom_kill, reading.groups[0].oom_kill) == (None, None, 0)


def test_events_that_count_a_group_alone_are_not_taken_for_the_whole(files: Files, machine: Host) -> None:
    files.write("/proc/self/mountinfo", V2_MOUNT.replace("nsdelegate", "nsdelegate,memory_localevents"))
    v2_group(files, "/a", memory__events="oom 0\noom_kill 0\n")
    v2_group(files, "/a/b", memory__events="oom 1\noom_kill 1\n")
    reading, _ = cgroup_gaps(machine, "0::/a/b")
    assert [(group.oom_kill, group.local_oom_kill) for group in reading.groups] == [(1, 0), (None, 0)]


def test_version_1_the_whole_chain_up_to_the_root(files: Files, machine: Host) -> None:
    files.write("/proc/self/mountinfo", V1_MOUNT)
    v1_group(files, "")
    v1_group(files, "/slurm", memory__limit_in_bytes="1000\n", memory__failcnt="31\n")
    v1_group(files, "/slurm/job_7", memory__oom_control="oom_kill_disable 0\nunder_oom 1\noom_kill 2\n")
    reading, gaps = cgroup_gaps(machine, "4:memory:/slurm/job_7", "0::/")
    assert gaps == []
    assert [group.path for group in reading.groups] == ["/slurm/job_7", "/slurm", "/"]
    assert [group.limit for group in reading.groups] == [None, 1000, None]
    assert [group.oom_kill for group in reading.groups] == [2, 0, 0]
    assert [group.failcnt for group in reading.groups] == [0, 31, 0]
    job = reading.groups[0]
    assert (job.version, job.anon, job.file, job.shmem, job.swap, job.peak) == (1, 600, 250, 50, 7, 950)
    assert (job.oom, job.local_oom_kill, job.processes) == (None, None, 2)


def test_hybrid_takes_the_hierarchy_that_has_the_controller(files: Files, machine: Host) -> None:
    files.write("/proc/self/mountinfo", V1_MOUNT + V2_MOUNT.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "))
    v1_group(files, "/job", memory__usage_in_bytes="1\n")
    files.folder("/sys/fs/cgroup/unified/user.slice")
    reading, _ = cgroup_gaps(machine, "0::/user.slice", "4:memory:/job")
    assert reading.groups[0].version == 1 and reading.groups[0].usage == 1
    # The other way round: memory is in version 2, and version 1 holds the rest.
    v2_group(files, "/user.slice", top="/sys/fs/cgroup/unified")
    reading, _ = cgroup_gaps(machine, "0::/user.slice", "4:freezer:/job")
    assert reading.groups[0].version == 2


def test_a_mount_elsewhere_that_shows_a_part(files: Files, machine: Host) -> None:
    """A container with version 1 and no cgroup namespace: the path is the host's, the mount begins at it."""
    files.write("/proc/self/mountinfo", "9 8 0:3 /docker/abc /my\\040cg ro - cgroup cgroup rw,memory\n")
    v1_group(files, "", top="/my cg", memory__limit_in_bytes="1000\n")
    v1_group(files, "/worker", top="/my cg")
    reading, gaps = cgroup_gaps(machine, "4:memory:/docker/abc/worker")
    assert gaps == []
    assert [(group.path, group.limit) for group in reading.groups] == [
        ("/docker/abc/worker", None),
        ("/docker/abc", 1000),
    ]


def test_a_path_that_the_mount_does_not_show(files: Files, machine: Host) -> None:
    """Its root must not be taken for the process's group: it is another container's, or above all of them."""
    files.write("/proc/self/mountinfo", "9 8 0:3 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n")
    v1_group(files, "", memory__limit_in_bytes="1000\n")
    for path in ("/docker/other", "/docker/abcdef", "/../other", "/docker/abc/../other"):
        reading, gaps = cgroup_gaps(machine, f"4:memory:{path}")
        assert reading.groups == [] and len(gaps) == 1, path


def test_a_removed_group_is_a_gap_and_those_above_are_read(files: Files, machine: Host) -> None:
    files.write("/proc/self/mountinfo", V2_MOUNT)
    v2_group(files, "/job")
    for line in ("0::/job/step/task", "0::/job/step (deleted)"):
        reading, gaps = cgroup_gaps(machine, line)
        assert [group.path for group in reading.groups] == ["/job"]
        assert len(gaps) == 1 and "/job/step" in gaps[0] and "ended with it" in gaps[0]


def test_no_groups_no_mount_no_controller(files: Files, machine: Host) -> None:
    assert "not known" in cgroup_gaps(machine)[1][0]
    assert "mountinfo" in cgroup_gaps(machine, "0::/job")[1][0]
    files.write("/proc/self/mountinfo", V1_MOUNT)
    assert "not mounted" in cgroup_gaps(machine, "0::/job")[1][0]
    files.write("/proc/self/mountinfo", V2_MOUNT)
    files.folder("/sys/fs/cgroup/job")
    assert "not enabled" in cgroup_gaps(machine, "0::/job")[1][0]
    assert "the root group, which has no counters" in cgroup_gaps(machine, "0::/")[1][0]


def test_hostile_lines_and_files(files: Files, machine: Host) -> None:
    files.write("/proc/self/mountinfo", V2_MOUNT + "\x00\xff garbage - \n" * 50)
    v2_group(
        files, "/job", memory__events="\x00oom_kill 1e9\n" * 100, memory__current="-5\n", memory__stat="anon 9" * 50
    )
    reading, _ = cgroup_gaps(machine, "0::/job")
    assert (reading.groups[0].usage, reading.groups[0].oom_kill, reading.groups[0].anon) == (None, None, None)
    for line in ("0::/nul\0byte", "0::" + "/a" * 5000, "0::/" + "n" * 5000):
        reading, gaps = cgroup_gaps(machine, line)
        assert reading.groups == [] and gaps, line[:20]
    v2_group(files, "/big", memory__stat="x" * (1 << 20))
    assert "larger than" in cgroup_gaps(machine, "0::/big")[1][0]


def test_the_machine(files: Files, machine: Host) -> None:
    files.write("/proc/vmstat", "nr_free_pages 5\noom_kill 6\n")
    files.write("/proc/meminfo", "MemTotal: 4 kB\nMemAvailable: 3 kB\nShmem: 2 kB\nSwapFree: 1 kB\n")
    files.write("/proc/pressure/memory", "some avg10=1.50 avg60=0.00 x\nfull avg10=0.25 avg60=0.00 x\n")
    reading, gaps = read_counters(machine, [], NOW)
    assert (reading.moment, reading.source, reading.oom_kill) == (NOW, "now", 6)
    assert (reading.mem_total, reading.mem_available, reading.mem_shmem, reading.swap_free) == (4096, 3072, 2048, 1024)
    assert (reading.psi_some, reading.psi_full) == (1.5, 0.25)
    assert (reading.shm_size, reading.shm_used) == (None, None)  # of a copy, unknown
    assert [gap.source for gap in gaps] == ["cgroup"]


def test_what_the_machine_lacks_is_said(files: Files, machine: Host) -> None:
    files.write("/proc/vmstat", "nr_free_pages 5\n")
    _, gaps = read_counters(machine, [], NOW)
    grants = {gap.source: gap.grant for gap in gaps}
    assert set(grants) == {"cgroup", "vmstat", "meminfo", "psi"}
    assert "psi=1" in (grants["psi"] or "")


@needs_root
def test_a_group_that_is_kept_from_us(public_files: Files, as_nobody: AsNobody) -> None:
    public_files.write("/proc/self/mountinfo", V2_MOUNT)
    v2_group(public_files, "/job")
    (public_files.root / "sys/fs/cgroup/job/memory.current").chmod(0)
    (gap,) = as_nobody(lambda: cgroup_gaps(Host(root=public_files.root), "0::/job")[1])
    assert "Permission denied" in gap


def test_this_machine() -> None:
    host = Host()
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    reading, _ = read_counters(host, lines, host.moment())
    assert reading.mem_total and reading.shm_size and reading.shm_used is not None
    assert reading.oom_kill is not None


@needs_cgroup_v1_memory
def test_a_real_kill_is_counted_at_its_own_level(limited_group: Path, eater: Eater) -> None:
    """The limit is the outer group's, the victim the inner's. On version 1, 6.18, oom_kill counts in the victim's own
    group only and failcnt where the limit is."""
    host = Host()
    before, gaps = read_counters(host, eater.lines, host.moment())
    assert [gap for gap in gaps if gap.source == "cgroup"] == []
    own, outer = before.groups[:2]
    assert own.path.endswith("/inner") and own.path == f"/{limited_group.name}/inner" and outer.limit == 64 << 20
    assert own.processes == 1 and own.inode == os.stat(limited_group / "inner").st_ino

    assert eater.eat() == -9

    after, gaps = read_counters(host, eater.lines, host.moment())
    assert [gap for gap in gaps if gap.source == "cgroup"] == []
    assert [group.path for group in after.groups] == [group.path for group in before.groups]
    assert own.oom_kill == 0 and after.groups[0].oom_kill == 1
    assert after.groups[1].oom_kill == 0
    assert outer.failcnt is not None and (after.groups[1].failcnt or 0) > outer.failcnt
    assert after.groups[0].failcnt == 0
    assert after.groups[1].peak is not None and 0.9 * (64 << 20) < after.groups[1].peak <= 64 << 20
    assert before.oom_kill is not None and after.oom_kill is not None
    assert after.oom_kill >= before.oom_kill + 1  # other kills may happen meanwhile

    (limited_group / "inner").rmdir()
    later, gaps = read_counters(host, eater.lines, host.moment())
    assert later.groups[0].path == f"/{limited_group.name}"
    (gap,) = [gap for gap in gaps if gap.source == "cgroup"]
    assert gap.why == f"/{limited_group.name}/inner is gone; its counters ended with it"
    assert gap.grant

    # Made again under its name: another group, whose inode tells that its zero is no continuation.
    (limited_group / "inner").mkdir()
    again, _ = read_counters(host, eater.lines, host.moment())
    assert again.groups[0].oom_kill == 0 and again.groups[0].inode != own.inode

"""The supervisor's own reading of counters: both versions of control groups, and the real machine's."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from ftforensics.capture.identity import json_text
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.supervise import counters


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def typed(levels: list[object]) -> list[GroupReading]:
    return msgspec.json.decode(json_text(levels), type=list[GroupReading])


def test_version_1(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    unlimited = {"memory__limit_in_bytes": "9223372036854771712\n", "memory__usage_in_bytes": "900\n"}
    write(memory, **unlimited)
    write(memory / "job", memory__limit_in_bytes="4096\n", memory__usage_in_bytes="4000\n", memory__failcnt="7\n",
          memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", cgroup__procs="1\n2\n",
          memory__max_usage_in_bytes="4096\n", memory__stat="cache 10\nrss 20\nshmem 5\ntotal_cache 30\ntotal_rss 40\n",
    )  # fmt: skip
    own, top = typed(counters.groups(["5:cpu:/x", "4:memory:/job", "0::/y"], str(tmp_path)))
    assert (own.path, own.version, own.usage, own.limit, own.failcnt, own.oom_kill) == ("/job", 1, 4000, 4096, 7, 2)
    assert (own.anon, own.file, own.shmem, own.peak, own.processes) == (40, 30, 5, 4096, 2)
    assert (top.path, top.usage, top.limit) == ("/", 900, None)
    assert own.inode == (memory / "job").stat().st_ino


def test_version_2(tmp_path: Path) -> None:
    write(tmp_path, cgroup__controllers="memory\n")
    write(tmp_path / "a" / "b", memory__current="100\n", memory__max="max\n", memory__peak="150\n",
          memory__events="low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 1\n",
          memory__events__local="oom 0\noom_kill 0\n", memory__stat="anon 60\nfile 30\nshmem 1\n",
    )  # fmt: skip
    own, middle, top = typed(counters.groups(["0::/a/b"], str(tmp_path)))
    assert (own.path, own.usage, own.limit, own.peak) == ("/a/b", 100, None, 150)
    assert (own.oom, own.oom_kill, own.oom_group_kill, own.max_events) == (2, 1, 1, 3)
    assert (own.local_oom, own.local_oom_kill, own.anon) == (0, 0, 60)
    assert (middle.path, top.path) == ("/a", "/")


def test_a_containers_mount_shows_its_own_group_at_the_top(tmp_path: Path) -> None:
    write(tmp_path / "memory", memory__limit_in_bytes="4096\n")
    (own,) = typed(counters.groups(["4:memory:/docker/abc"], str(tmp_path)))
    assert (own.path, own.limit) == ("/", 4096)


def test_no_hierarchy(tmp_path: Path) -> None:
    assert counters.groups(["0::/x"], str(tmp_path)) == [] and counters.groups([], str(tmp_path)) == []


def test_this_machine_fits_the_model() -> None:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    text = json_text(counters.reading(lines))
    reading = msgspec.json.decode(text, type=Reading)
    assert set(json.loads(text)) <= set(Reading.__struct_fields__)
    for level in json.loads(text)["groups"]:
        assert set(level) <= set(GroupReading.__struct_fields__)
    assert reading.mem_total and reading.oom_kill is not None and reading.moment.boot_id

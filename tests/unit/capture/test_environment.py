"""Which variables a record may hold."""

from __future__ import annotations

from pathlib import Path

from ftforensics.capture import cgroup, environment


def test_only_listed_names_and_redacted_values() -> None:
    environ = {
        "NCCL_DEBUG": "INFO",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "MY_COMPANY_SETTING": "x",
        "HF_TOKEN": "hunter2",
        "NCCL_SHARED_SECRET": "hunter2",
        "TORCH_PROXY": "http://u:hunter2@proxy",
        "PYTHONPATH": "/x" * 5000,
    }
    out = dict(environment.recorded_variables(environ))
    assert out["NCCL_DEBUG"] == "INFO"
    assert out["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert out["NCCL_SHARED_SECRET"] == "[redacted]"
    assert out["TORCH_PROXY"] == "http://[redacted]@proxy"
    assert len(out["PYTHONPATH"]) == environment.MAX_VALUE
    assert "MY_COMPANY_SETTING" not in out and "HF_TOKEN" not in out


def test_ranks_of_each_launcher() -> None:
    assert environment.rank({"RANK": "3", "SLURM_PROCID": "0"}) == 3
    assert environment.rank({"OMPI_COMM_WORLD_RANK": "5"}) == 5
    assert environment.rank({"PMI_RANK": "6"}) == 6
    assert environment.rank({"SLURM_PROCID": "7"}) == 7
    assert environment.rank({"RANK": "-1"}) is None
    assert environment.rank({"RANK": ""}) is None
    assert environment.local_rank({"LOCAL_RANK": "2"}) == 2
    assert environment.world_size({"SLURM_NTASKS": "16"}) == 16


def test_the_reporter_inherits_nothing_that_could_break_it() -> None:
    environ = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "XDG_STATE_HOME": "/s",
        "NO_COLOR": "1",
        "LD_PRELOAD": "x.so",
        "LD_LIBRARY_PATH": "/y",
        "PYTHONPATH": "/z",
        "HF_TOKEN": "hunter2",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    out = environment.reporter_environment(environ)
    assert sorted(out) == [b"LC_ALL=C", b"NO_COLOR=1", b"PATH=/bin", b"XDG_STATE_HOME=/s"]


def group(path: Path, usage: str, limit: str, value: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / usage).write_text("1000\n")
    (path / limit).write_text(value + "\n")


def test_memory_files_of_version_2_and_its_limited_ancestor(tmp_path: Path) -> None:
    group(tmp_path / "job", "memory.current", "memory.max", "68719476736")
    group(tmp_path / "job/step", "memory.current", "memory.max", "max")
    found = cgroup.memory_files(["0::/job/step"], str(tmp_path))
    assert found == [bytes(tmp_path / "job/memory.current"), bytes(tmp_path / "job/memory.max")]


def test_memory_files_of_version_1(tmp_path: Path) -> None:
    group(tmp_path / "memory/a", "memory.usage_in_bytes", "memory.limit_in_bytes", "1073741824")
    lines = ["11:cpu,cpuacct:/a", "4:memory:/a", "0::/"]
    assert cgroup.memory_files(lines, str(tmp_path)) == [
        bytes(tmp_path / "memory/a/memory.usage_in_bytes"),
        bytes(tmp_path / "memory/a/memory.limit_in_bytes"),
    ]


def test_no_limit_is_no_file(tmp_path: Path) -> None:
    group(tmp_path / "memory", "memory.usage_in_bytes", "memory.limit_in_bytes", "9223372036854771712")
    group(tmp_path / "memory/a", "memory.usage_in_bytes", "memory.limit_in_bytes", "9223372036854771712")
    assert cgroup.memory_files(["4:memory:/a"], str(tmp_path)) == []
    assert cgroup.memory_files([], str(tmp_path)) == []


def test_a_container_sees_its_own_group_at_the_top(tmp_path: Path) -> None:
    group(tmp_path, "memory.current", "memory.max", "1024")
    found = cgroup.memory_files(["0::/kubepods/pod1/abc"], str(tmp_path))
    assert found == [bytes(tmp_path / "memory.current"), bytes(tmp_path / "memory.max")]

"""The run folder: one place for all ranks of a launch, nothing left when nothing happened."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ftforensics.capture import folder, procfs


def run_id_of_child(environ: dict[str, str], shell: bool = False) -> str:
    """run_id as a child of this process computes it; with `shell`, behind a per-rank `sh -c`."""
    code = "import os; from ftforensics.capture import folder; print(folder.run_id(os.environ))"
    argv = [sys.executable, "-c", code]
    if shell:
        argv = ["/bin/sh", "-c", f'"{sys.executable}" -c "{code}"; true']
    base = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    source = str(Path(folder.__file__).parents[2])
    done = subprocess.run(
        argv, env={**base, "PYTHONPATH": source, **environ}, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def elastic(rank: int, **more: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "GROUP_WORLD_SIZE": "1",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "MASTER_PORT": "29500",
        **more,
    }


def agent() -> str:
    """What stands for us, the process that starts the ranks."""
    return f"{os.getpid()}-{procfs.start_ticks(os.getpid())}"


def test_the_word_none_is_no_id_and_all_ranks_agree() -> None:
    ids = {run_id_of_child(elastic(rank)) for rank in (0, 1)}
    assert ids == {agent()}


def test_a_shell_around_each_rank_makes_no_difference() -> None:
    assert run_id_of_child(elastic(0), shell=True) == run_id_of_child(elastic(1)) == agent()


def test_a_given_id_is_used_with_the_agent_because_people_reuse_ids() -> None:
    assert run_id_of_child(elastic(0, TORCHELASTIC_RUN_ID="100")) == f"100-{agent()}"


def test_each_attempt_has_its_folder() -> None:
    first = run_id_of_child(elastic(0))
    second = run_id_of_child(elastic(0, TORCHELASTIC_RESTART_COUNT="1"))
    assert second == f"{first}-attempt1"


def test_over_several_nodes_only_what_all_nodes_know_counts() -> None:
    name = run_id_of_child(elastic(0, TORCHELASTIC_RUN_ID="job7", GROUP_WORLD_SIZE="2"))
    assert name == "job7-29500"


def test_slurm_steps_are_unique_by_themselves() -> None:
    environ = {"SLURM_JOB_ID": "4411", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}
    assert run_id_of_child(environ) == "4411.0"
    assert run_id_of_child({**environ, "SLURM_RESTART_COUNT": "2"}) == "4411.0-attempt2"


def test_torchrun_twice_in_one_slurm_job_are_two_launches() -> None:
    environ = elastic(0, SLURM_JOB_ID="4411", TORCHELASTIC_RUN_ID="4411")
    assert run_id_of_child(environ) == f"4411-{agent()}"


def test_without_a_launcher_the_process_is_the_launch() -> None:
    first, second = run_id_of_child({}), run_id_of_child({})
    assert first != second
    assert not first.startswith(str(os.getpid()))


def test_an_id_cannot_leave_the_folder() -> None:
    name = folder.run_id({"PBS_JOBID": "../../etc/passwd", "SLURM_NNODES": "2"})
    assert "/" not in name and not name.startswith(".")
    assert len(folder.run_id({"PBS_JOBID": "x" * 500, "SLURM_NNODES": "2"})) <= 100


def test_stem() -> None:
    assert folder.stem({"RANK": "3"}, "gpu-07.cluster.local") == "gpu-07-rank3"
    assert folder.stem({"LOCAL_RANK": "1"}, "h") == "h-local1"
    assert folder.stem({}, "") == "localhost"
    assert folder.stem({"RANK": "³"}, "h") == "h"


def test_an_explicit_folder_wins_over_the_environment(tmp_path: Path) -> None:
    opened = folder.open_folder(str(tmp_path / "a"), {"FTFORENSICS_DIR": str(tmp_path / "b")})
    assert opened.path == str(tmp_path / "a")
    assert not (tmp_path / "b").exists()
    assert folder.open_folder(None, {"FTFORENSICS_DIR": str(tmp_path / "b")}).path == str(tmp_path / "b")


def test_the_default_stands_under_the_working_directory_and_goes_when_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = folder.open_folder(None, {})
    assert Path(opened.path).parent == tmp_path / "ftforensics"
    assert Path(opened.path).is_dir()
    opened.remove_if_empty()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_record_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened = folder.open_folder(None, {})
    Path(opened.path, "x.crash.json").touch()
    opened.remove_if_empty()
    assert Path(opened.path, "x.crash.json").exists()


def test_a_folder_that_was_there_before_us_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    opened = folder.open_folder(str(tmp_path / "mine" / "deep" / "er"), {})
    opened.remove_if_empty()
    assert (tmp_path / "mine").is_dir()
    assert not (tmp_path / "mine" / "deep").exists()


def test_a_forked_child_does_not_pull_the_folder_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened = folder.open_folder(None, {})
    pid = os.fork()
    if pid == 0:
        opened.remove_if_empty()
        os._exit(0)
    os.waitpid(pid, 0)
    assert Path(opened.path).is_dir()


def unwritable(tmp_path: Path) -> Path:
    """A place where root cannot write either: below a file."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "x"


def test_a_refused_folder_falls_back_to_the_state_directory_and_says_so(tmp_path: Path) -> None:
    opened = folder.open_folder(str(unwritable(tmp_path)), {"XDG_STATE_HOME": str(tmp_path / "state")})
    assert opened.path.startswith(str(tmp_path / "state" / "ftforensics") + "/")
    assert "Not a directory" in opened.note and opened.path in opened.note


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    code = f"""
        import os
        from ftforensics.capture import folder
        os.mkdir({str(tmp_path / "gone")!r}); os.chdir({str(tmp_path / "gone")!r}); os.rmdir({str(tmp_path / "gone")!r})
        print(folder.open_folder(None, {{"HOME": {str(tmp_path)!r}}}).path)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(str(tmp_path / ".local/state/ftforensics"))


def test_somebody_elses_directory_in_tmp_is_not_used(tmp_path: Path) -> None:
    planted = tmp_path / f"ftforensics-{os.getuid()}"
    planted.mkdir(mode=0o777)
    planted.chmod(0o777)
    with pytest.raises(OSError, match="somebody else"):
        folder.open_folder(str(unwritable(tmp_path)), {"TMPDIR": str(tmp_path)})
    planted.rmdir()
    planted.symlink_to("/etc")
    with pytest.raises(OSError):
        folder.open_folder(str(tmp_path / "file" / "x"), {"TMPDIR": str(tmp_path)})

"""The one-line form and the five lines at the crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import msgspec

from ftforensics.model.diagnosis import Diagnosis, Exit, Remedy, Verdict
from ftforensics.report import one_line
from ftforensics.report.brief import LONGEST, brief

Make = Callable[..., Diagnosis]


def test_one_line(diagnosis: Diagnosis) -> None:
    line = one_line.render(diagnosis, "ftforensics/4411")
    assert line == (
        "ftforensics: rank 0 on gpu-07plain died of SIGSEGV, native-fault (likely), in save plain; "
        "ftforensics analyze ftforensics/4411"
    )


def test_one_line_of_a_kill_names_the_killer(make_killed: Make, make_unexplained: Make) -> None:
    assert one_line.render(make_killed(), "ftforensics/4411") == (
        "ftforensics: rank 3 killed by the kernel, cgroup-oom (proven), in save_checkpoint; "
        "ftforensics analyze ftforensics/4411"
    )
    assert one_line.render(make_unexplained(), "x.ring") == (
        "ftforensics: pid 438 killed by SIGKILL, killed-unknown (undecided); ftforensics analyze x.ring"
    )


def test_one_line_of_an_exception_has_its_type_and_message(make_raised: Make) -> None:
    assert one_line.render(make_raised(), "x") == (
        "ftforensics: rank 1 raised torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB, "
        "cuda-out-of-memory (likely), in save; ftforensics analyze x"
    )


def test_one_line_of_an_exit_has_its_status(make_raised: Make) -> None:
    process = msgspec.structs.replace(make_raised().processes[0], raised=[], exit=Exit(code=3), phase=None)
    verdict = Verdict("failed", "exit-code", "exit-code", "likely", "Rank 1 ended with status 3.")
    line = one_line.render(make_raised(verdict=verdict, processes=[process]), "x")
    assert line == "ftforensics: rank 1 exited with status 3, exit-code (likely); ftforensics analyze x"


def test_a_lost_peer_accuses_nobody_here(make_peer_lost: Make) -> None:
    line = one_line.render(make_peer_lost(), "x")
    assert line == (
        "ftforensics: Nobody here failed first: rank 1 on node gpu-09 went away; look there, peer-lost (likely); "
        "ftforensics analyze x"
    )
    lines = brief(make_peer_lost(), "x")
    assert lines[1] == "ftforensics:   seen by ranks 2, 3 on gpu-08, first at 2025-11-29 16:40:00 UTC"
    assert "because: Connection closed by peer [10.0.0.9]:29500" in lines[2]
    assert "next: look at what was left on gpu-09" in lines[3]


def test_with_several_hosts_the_host_is_said(make_huge: Make) -> None:
    assert "rank 4711 on node0588 killed by the kernel" in one_line.render(make_huge(), "x")


def test_a_run_that_ended_well_is_one_line(make_succeeded: Make) -> None:
    assert brief(make_succeeded(), "x") == ["ftforensics: The run ended well: status 0."]
    line = one_line.render(make_succeeded(), "x")
    assert line == "ftforensics: The run ended well: status 0; ftforensics analyze x"


def test_brief_of_an_exception_says_where(make_raised: Make) -> None:
    lines = brief(make_raised(), "x")
    assert "rank 1 (pid 51) on gpu-07 raised torch.OutOfMemoryError, in save, step 7" in lines[1]
    assert lines[2].endswith(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB at model.py:41 forward()"
    )


def test_a_long_message_keeps_the_one_line_short(make_raised: Make) -> None:
    assert len(one_line.render(make_raised("m" * 10_000), "x")) < 600


def test_brief_of_a_kill_says_how_memory_stood(make_killed: Make, make_unexplained: Make) -> None:
    lines = brief(make_killed(), "ftforensics/4411")
    assert lines[0].endswith("the job's own memory limit was reached. [PROVEN]")
    assert "rank 3 (pid 18033) on gpu-07 killed by SIGKILL, in save_checkpoint, step 500" in lines[1]
    assert lines[2] == (
        "ftforensics:   memory: 63.9 GiB of 64 GiB in use (99.8 %); grew 1.0 GiB/s for 47 s, "
        "from 15.8 GiB to 63.9 GiB; largest: rank 3 (pid 18033) 8.1 GiB"
    )
    assert lines[3].startswith("ftforensics:   fix: ZeRO-3")
    assert brief(make_unexplained(), "x")[3].startswith("ftforensics:   next: Look at the kernel log on the node")


def test_brief_of_a_kill_without_memory_gives_its_evidence(make_killed: Make) -> None:
    diagnosis = make_killed()
    bare = msgspec.structs.replace(diagnosis.processes[0], memory=None, last_second=None)
    line = brief(msgspec.structs.replace(diagnosis, processes=[bare]), "x")[2]
    assert line.startswith("ftforensics:   because: Memory cgroup out of memory: Killed process 18033 (python)")


def test_brief_is_five_lines_that_end_with_the_record(diagnosis: Diagnosis) -> None:
    lines = brief(diagnosis, "/run/x.crash.json")
    assert len(lines) == 5
    assert all(line.startswith("ftforensics: ") for line in lines)
    assert lines[0].endswith("[LIKELY]")
    assert "train_step (train.py:88)" in lines[2]
    assert "fix: Unset LD_LIBRARY_PATH" in lines[3]
    assert "/run/x.crash.json" in lines[4]


def test_brief_of_nothing_is_five_lines() -> None:
    lines = brief(Diagnosis(Verdict("unknown", None, None, "undecided", "")), "/x")
    assert len(lines) == 5


def test_undecided_gives_a_next_step_not_a_fix(undecided: Diagnosis) -> None:
    assert "next: --cap-add SYS_PTRACE" in brief(undecided, "/x")[3]
    assert "cause not known (undecided)" in one_line.render(undecided, "/x")


def test_hostile_text_does_nothing(make_any: Make, hostile: str, dangerous: list[str]) -> None:
    diagnosis = make_any(hostile)
    lines = [*brief(diagnosis, f"/x/{hostile}"), one_line.render(diagnosis, hostile)]
    assert len(lines) == (2 if diagnosis.verdict.outcome == "succeeded" else 6)
    for line in lines:
        assert "\n" not in line
        assert not [character for character in dangerous if character in line]


def test_long_text_stays_short_but_the_path_stays_whole(make_diagnosis: Make) -> None:
    path = "/" + "p" * 400
    lines = brief(make_diagnosis("word " * 500), path)
    assert all(len(line) <= 160 for line in lines[:4])
    assert path in lines[4]


def test_the_five_lines_need_no_rich_and_no_templates() -> None:
    code = "import sys, ftforensics.report.brief; print(*sorted({'rich', 'jinja2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_a_long_fix_keeps_its_command_whole(diagnosis: Diagnosis) -> None:
    """A command that is cut in the middle is none, and reads as one."""
    words = "Install torch 2.5.1 for CUDA 12.1: the driver offers CUDA 12.1; unset LD_LIBRARY_PATH in the same step"
    command = (
        "pip install torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 "
        "--index-url https://download.pytorch.org/whl/cu121"
    )
    line = brief(msgspec.structs.replace(diagnosis, remedies=[Remedy(words, command)]), "/x")[3]
    assert line == f"ftforensics:   fix: Install torch 2.5.1 for…  {command}"
    assert len(line) <= LONGEST
    line = brief(msgspec.structs.replace(diagnosis, remedies=[Remedy(words * 2, command * 2)]), "/x")[3]
    assert line.startswith(f"ftforensics:   fix: {words[:60]}") and "pip" not in line
    assert line.endswith("…") and len(line) <= LONGEST

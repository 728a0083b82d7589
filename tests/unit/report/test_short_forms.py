"""The one-line form and the five lines at the crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import msgspec

from ftforensics.model.diagnosis import Diagnosis, Remedy, Verdict
from ftforensics.report import one_line
from ftforensics.report.brief import LONGEST, brief

Make = Callable[..., Diagnosis]


def test_one_line(diagnosis: Diagnosis) -> None:
    line = one_line.render(diagnosis, "ftforensics/4411")
    assert line == (
        "ftforensics: rank 0 died of SIGSEGV, native-fault (likely), in save plain; "
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
    assert len(lines) == 6
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

"""What is told and kept when a job has ended badly."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conditions import ROOT, Interpreter
from supervised import RUN, environment, wait_for


def test_the_folder_holds_what_analyze_would_say(job) -> None:
    ended = job("sh", "-c", "echo last words; exit 3")
    assert ended.status == 3
    assert set(os.listdir(ended.folder)) >= {"evidence.jsonl", "launcher.log", "report.json", "report.html"}
    report = json.loads((ended.folder / "report.json").read_text())
    assert report["schema"] == "ftforensics.report/1" and report["verdict"]["outcome"] == "failed"
    for name in os.listdir(ended.folder):
        assert stat.S_IMODE((ended.folder / name).stat().st_mode) == 0o600, name
    lines = ended.err.decode().splitlines()
    assert len(lines) == 5 and all(line.startswith("ftforensics: ") for line in lines)
    again = subprocess.run(
        [sys.executable, "-m", "ftforensics", "analyze", "--json", str(ended.folder)],
        env=environment(),
        capture_output=True,
    )
    assert json.loads(again.stdout)["verdict"]["cause"] == report["verdict"]["cause"]


def test_a_good_end_leaves_nothing(job, tmp_path: Path) -> None:
    ended = job("sh", "-c", "echo fine")
    assert (ended.status, ended.out, ended.err) == (0, b"fine\n", b"")
    assert os.listdir(tmp_path) == []


def test_the_default_folder_is_below_the_working_directory_and_goes_with_a_good_end(tmp_path: Path) -> None:
    for code in (0, 1):
        subprocess.run([*RUN, "--", "sh", "-c", f"exit {code}"], cwd=tmp_path, env=environment(), capture_output=True)
        assert os.listdir(tmp_path) == (["ftforensics"] if code else [])
    (run,) = (tmp_path / "ftforensics").iterdir()
    assert (run / "evidence.jsonl").exists()


def test_a_job_started_again_in_its_folder_is_not_told_the_end_of_the_attempt_before(job) -> None:
    job("sh", "-c", "kill -9 $$")
    second = job("sh", "-c", "exit 3")
    (own,) = second.folder.glob("?*.report.json")
    report = json.loads(own.read_text())
    assert [process["exit"]["code"] for process in report["processes"]] == [3]
    assert report["verdict"]["cause"] == "exit-code" and report["verdict"]["confidence"] != "proven"
    assert [attempt["outcome"] for attempt in report["attempts"]] == ["failed"]


def test_two_runs_in_one_folder_keep_apart(job) -> None:
    first = job("sh", "-c", "exit 3")
    before = (first.folder / "evidence.jsonl").read_bytes()
    job("sh", "-c", "exit 4")
    assert (first.folder / "evidence.jsonl").read_bytes() == before
    names = os.listdir(first.folder)
    for kind in ("evidence.jsonl", "launcher.log", "report.json"):
        assert len([name for name in names if name.endswith(kind)]) == 2


def test_quiet_is_quiet_and_keeps_the_report(job) -> None:
    ended = job("sh", "-c", "exit 3", options=["--quiet"])
    assert ended.err == b"" and (ended.folder / "report.json").exists()


def test_no_log(job) -> None:
    ended = job("sh", "-c", "echo out; exit 3", options=["--no-log"])
    assert ended.out == b"out\n" and not (ended.folder / "launcher.log").exists()


def test_on_a_terminal_the_whole_report_is_shown(terminal) -> None:
    window = terminal(*RUN, "--dir", "folder", "--", "sh", "-c", "exit 3")
    assert window.wait() == 3
    assert b"ftforensics: " not in window.text.splitlines()[0] and len(window.text.splitlines()) > 5


LEAVES_IT_RAW = "import os, signal, tty; tty.setraw(0); os.kill(os.getpid(), signal.SIGKILL)"


def test_the_report_has_line_ends_on_a_terminal_that_the_job_left_raw(terminal) -> None:
    window = terminal(*RUN, "--dir", "folder", "--", sys.executable, "-S", "-c", LEAVES_IT_RAW)
    assert window.wait() == -signal.SIGKILL
    assert window.text.count(b"\n") > 5 and window.text.count(b"\r\n") == window.text.count(b"\n")


def test_the_report_is_as_wide_as_the_terminal(terminal, tmp_path: Path) -> None:
    widths = []
    for columns in (60, 150):
        window = terminal(*RUN, "--dir", "folder", "--", "sh", "-c", "exit 3", "-", "x" * 500, size=(40, columns))
        assert window.wait() == 3
        lines = window.text.decode().split("\r\n")
        widths.append(max(len(line) for line in lines if str(tmp_path) not in line))
    assert widths[0] < 80 < widths[1]


TELL = 'printf "%s\\n" "$FTFORENSICS_REPORT" "$FTFORENSICS_FOLDER" "$FTFORENSICS_CAUSE" "$FTFORENSICS_CONFIDENCE" '


def test_on_failure_is_told_the_verdict(job, tmp_path: Path) -> None:
    ended = job("sh", "-c", "exit 3", options=["--on-failure", TELL + '"$FTFORENSICS_VERDICT" > told'])
    report, folder, cause, confidence, verdict = (tmp_path / "told").read_text().splitlines()
    written = json.loads(Path(report).read_text())
    assert Path(folder) == ended.folder and Path(report).parent == ended.folder
    assert (cause, confidence) == (written["verdict"]["cause"] or "", written["verdict"]["confidence"])
    assert verdict.startswith("ftforensics: ") and confidence in verdict


@pytest.mark.parametrize("command", ["exit 9", "kill -9 $$", "/no/such"])
def test_on_failure_that_fails_changes_nothing(job, command: str) -> None:
    ended = job("sh", "-c", "kill -15 $$", options=["--on-failure", command])
    assert ended.status == -15
    assert b"the command given with --on-failure" in ended.err.splitlines()[-1]


def test_on_failure_is_not_called_after_a_good_end(job, tmp_path: Path) -> None:
    job("true", options=["--on-failure", "touch called"])
    assert not (tmp_path / "called").exists()


def test_what_comes_after_can_be_interrupted(start, tmp_path: Path) -> None:
    """A Ctrl-C, or the scheduler's TERM: the status is delivered at once."""
    job = start("sh", "-c", "exit 3", options=["--on-failure", "touch begun; sleep 60"], stderr=subprocess.PIPE)
    wait_for((tmp_path / "begun").exists)
    begun = time.monotonic()
    job.send_signal(signal.SIGINT)
    assert job.wait(30) == 3
    assert time.monotonic() - begun < 5
    assert b"interrupted by SIGINT; the evidence is kept" in job.stderr.read()


def test_a_reader_that_has_stopped_holds_nobody_for_ever(tmp_path: Path, start) -> None:
    """The pager stands still: a signal ends the waiting, and what is left is delivered in the background."""
    job = start("sh", "-c", "head -c 200000 /dev/zero; exit 3", options=["--quiet"], stdout=subprocess.PIPE)
    evidence = tmp_path / "folder" / "evidence.jsonl"
    wait_for(lambda: evidence.exists() and b'"why": "end"' in evidence.read_bytes())
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(1.5)  # its end, and our report, come after its last byte
    job.send_signal(signal.SIGTERM)
    assert job.wait(30) == 3
    assert len(job.stdout.read()) == 200000


SLOW = """
import sys
if 'ftforensics' in str(sys.orig_argv[1:3]):
    import time
    import ftforensics.cli.run as run
    run.DEADLINE = 0.5
    def slow(*_, **__):
        try:
            time.sleep(60)
        except Exception:
            pass
    run._judged = slow
"""


def test_a_judgement_that_takes_too_long_is_given_up(job, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    begun = time.monotonic()
    ended = job("sh", "-c", "exit 3", env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"})
    assert ended.status == 3 and time.monotonic() - begun < 20
    assert ended.err.startswith(b"ftforensics: no report within 0.5 s; the evidence is kept: ftforensics analyze ")


BROKEN = """
import sys
if 'ftforensics' in str(sys.orig_argv[1:3]):
    import ftforensics.cli.run as run
    def broken(*_, **__): raise ValueError('planted')
    run._judged = broken
"""


@pytest.mark.parametrize("fault", [SLOW, BROKEN])
def test_on_failure_is_told_what_is_known_when_there_is_no_judgement(job, tmp_path: Path, fault: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(fault)
    ended = job(
        "sh", "-c", "exit 3", options=["--on-failure", 'echo "$FTFORENSICS_VERDICT" > told'],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
    )  # fmt: skip
    assert ended.status == 3 and ended.err.count(b"\n") == 1
    assert (tmp_path / "told").read_text() == f"ftforensics: the job exited 3; ftforensics analyze {ended.folder}\n"


NOWHERE = """
import sys
if 'ftforensics' in str(sys.orig_argv[1:3]):
    import ftforensics.supervise.supervisor as supervisor
    def refuse(*_): raise OSError(28, 'No space left on device', '/there')
    supervisor.open_folder = refuse
"""


def test_on_failure_is_told_also_where_nothing_could_be_written(job, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOWHERE)
    ended = job(
        "sh", "-c", "exit 3", options=["--on-failure", 'echo "$FTFORENSICS_VERDICT|$FTFORENSICS_FOLDER" > told'],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
    )  # fmt: skip
    assert (ended.status, ended.err) == (3, b"ftforensics: nothing is recorded: /there: No space left on device\n")
    assert (tmp_path / "told").read_text() == "ftforensics: the job exited 3|\n"


def test_a_folder_that_the_job_removed_is_said_to_be_gone(job) -> None:
    ended = job("sh", "-c", 'rm -r "$FTFORENSICS_DIR"; exit 3', options=["--on-failure", "echo called >&2"])
    assert ended.status == 3 and ended.err.endswith(b"called\n")
    assert b"is kept" not in ended.err and b"was removed" in ended.err


def test_a_link_under_the_reports_name_is_not_followed(job, tmp_path: Path) -> None:
    """Somebody who may write to the folder must not choose which file of ours is written over."""
    (tmp_path / "precious").write_text("precious")
    ended = job("sh", "-c", 'ln -s ../precious "$FTFORENSICS_DIR/report.json"; exit 3')
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (ended.folder / "report.json").is_symlink() and (ended.folder / "report.json").exists()


CRASH = "import ctypes, ftforensics; ftforensics.install(); ctypes.string_at(0)"


def test_where_the_crash_reporter_has_told_one_line_is_enough(job) -> None:
    ended = job(sys.executable, "-c", CRASH)
    assert ended.status == -signal.SIGSEGV
    lines = ended.err.decode().splitlines()
    assert list(ended.folder.glob("*.helper.json"))
    mine = [line for line in lines if line.startswith("ftforensics: ")]
    assert len(mine) == 6 and "; ftforensics analyze " in mine[-1]


WITHOUT = "import sys\nif 'ftforensics' in str(sys.orig_argv[1:3]):\n    sys.modules['msgspec'] = None\n"


def test_without_the_analysers_packages_the_folder_says_where_to_go(job, tmp_path: Path) -> None:
    """Installed with --no-deps beside a training stack."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    ended = job(
        "sh", "-c", "kill -9 $$", options=["--on-failure", TELL + '"$FTFORENSICS_VERDICT" > told'],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
    )  # fmt: skip
    assert ended.status == -9
    (line,) = ended.err.decode().splitlines()
    assert "msgspec is missing" in line and line.endswith(f"ftforensics analyze {ended.folder}")
    assert [death.signal for death in ended.evidence.died if death.direct] == [9]
    assert "died of signal 9" in (tmp_path / "told").read_text()


def test_every_python_can_supervise(python: Interpreter, tmp_path: Path) -> None:
    """With warnings as errors: fork() in a process with threads warns from 3.12 on."""
    command = [python.path, "-W", "error::DeprecationWarning", "-m", "ftforensics", "run", "--dir", str(tmp_path / "x")]
    made = subprocess.run(
        [*command, "--", "sh", "-c", "echo $1; kill -9 $$", "-", "--"], env=environment(), capture_output=True
    )
    assert (made.returncode, made.stdout) == (-9, b"--\n")
    assert b"Warning" not in made.stderr and b"Traceback" not in made.stderr
    assert b'"type": "died"' in (tmp_path / "x" / "evidence.jsonl").read_bytes()


@pytest.mark.parametrize(
    "arguments", [[], ["--"], ["--dir", "x"], ["--no-such-option", "--", "true"], ["--on-failure"]]
)
def test_bad_usage_is_one_line(arguments: list[str]) -> None:
    made = subprocess.run([*RUN, *arguments], env=environment(), capture_output=True)
    assert made.returncode == 2 and made.stderr.count(b"\n") == 1


def test_a_verdict_that_cannot_be_written_is_told(job, tmp_path: Path) -> None:
    ended = job(
        "sh", "-c", 'mkdir "$FTFORENSICS_DIR/report.json"; exit 3',
        options=["--on-failure", 'echo "$FTFORENSICS_REPORT|$FTFORENSICS_CAUSE" > told'],
    )  # fmt: skip
    assert ended.status == 3
    assert b"cannot write to" in ended.err.splitlines()[0] and b"exit status 3" in ended.err.splitlines()[1]
    assert (tmp_path / "told").read_text() == "|exit-code\n"

"""What torchrun finds in its error file about a rank that could not write it itself.

Most tests have a launcher of their own that names files as torchrun does and asks for them when the test allows it:
torchrun itself looks ten times a second, and who is first is not to be tested by chance. The last ones have torchrun.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from conditions import (
    CGROUP_V1_MEMORY,
    needs_cgroup_v1_memory,
    needs_proc_events,
    needs_root,
    needs_torch,
    needs_tracefs,
    needs_unshare,
)
from ftforensics.model.run import RunEvidence
from supervised import PATIENCE, RUN, Ended, environment, wait_for

# argv: folder for the error files, then a command for each rank. Tells the ranks' pids, and ends when its input does.
LAUNCHER = """
import json, os, subprocess, sys
ranks = []
for rank, command in enumerate(json.loads(sys.argv[2])):
    place = os.path.join(sys.argv[1], str(rank))
    os.makedirs(place, exist_ok=True)
    environ = {**os.environ, "RANK": str(rank + 4), "LOCAL_RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": "2",
               "TORCHELASTIC_ERROR_FILE": os.path.join(place, "error.json")}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    ranks.append(subprocess.Popen(command, env=environ, start_new_session=True, **pipes))
for rank in ranks:
    rank.stdout.readline()
print(*[rank.pid for rank in ranks], flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "end":
        ranks[int(words[1])].send_signal(int(words[2]))
    if words[0] == "wait":
        print(ranks[int(words[1])].wait(), flush=True)
sys.exit(1)
"""
SLEEP = "print('here', flush=True); import time; time.sleep(60)"
RANK = [sys.executable, "-S", "-c", SLEEP]


def answer(path: Path) -> tuple[str, int]:
    """(text, second), read as torchrun does (torch.distributed.elastic.multiprocessing.errors.ProcessFailure)."""
    message = json.loads(path.read_bytes().decode("ascii"))["message"]
    return message["extraInfo"]["py_callstack"], int(message["extraInfo"]["timestamp"])


@dataclass
class Launched:
    """A job whose launcher does what it is told. files: of the ranks."""

    process: subprocess.Popen[bytes]
    pids: list[int]
    folder: Path
    files: list[Path]

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, rank: int) -> int:
        assert self.process.stdout is not None
        self.say(f"wait {rank}")
        return int(self.process.stdout.readline())

    def text(self, rank: int) -> str:
        wait_for(self.files[rank].exists)
        return answer(self.files[rank])[0]

    def end(self) -> RunEvidence:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 1
        return Ended(1, b"", b"", self.folder).evidence


Launch = Callable[..., Launched]


def watched_by(supervisor: int) -> set[int]:
    """Of whom it holds a pidfd (man 5 proc_pid_fdinfo): it knows them, and will be woken by their end."""
    found = set()
    for path in Path(f"/proc/{supervisor}/fdinfo").iterdir():
        found |= {int(line.split()[1]) for line in readable(path).splitlines() if line.startswith("Pid:")}
    return found


@pytest.fixture
def launch(start, tmp_path: Path) -> Launch:
    def begin(
        *ranks: list[str],
        env: dict[str, str] | None = None,
        armed: bool = True,
        watched: bool = True,
        errors: str = str(tmp_path / "errors"),
    ) -> Launched:
        command = [sys.executable, "-S", "-c", LAUNCHER, errors, json.dumps(ranks)]
        process = start(
            *command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(**(env or {})),
        )  # fmt: skip
        pids = [int(word) for word in process.stdout.readline().split()]
        folder = tmp_path / "folder"
        # The line `started` is written when what is traced is armed; what came before is kept until then.
        wait_for(lambda: not armed or (folder / "evidence.jsonl").stat().st_size)
        if watched:
            wait_for(lambda: set(pids) <= watched_by(process.pid))
        else:
            time.sleep(0.3)  # what is not watched gives no sign of having been seen
        files = [tmp_path / "errors" / str(rank) / "error.json" for rank in range(len(ranks))]
        return Launched(process, pids, folder, files)

    return begin


@needs_proc_events
@needs_tracefs
def test_who_killed_a_rank(launch: Launch) -> None:
    job = launch(RANK, RANK)
    before = time.time()
    os.kill(job.pids[1], signal.SIGKILL)
    text = job.text(1)
    second = answer(job.files[1])[1]
    assert int(before) <= second <= time.time()
    comm = Path("/proc/self/comm").read_text().strip()
    assert text == (
        f"ftforensics: rank 5 (pid {job.pids[1]}) was killed by SIGKILL, sent by pid {os.getpid()} ({comm}); "
        f"whole report: ftforensics analyze {job.folder}\n"
    ).rstrip("\n")
    assert stat.S_IMODE(job.files[1].stat().st_mode) == 0o600
    assert os.listdir(job.files[1].parent) == ["error.json"]
    evidence = job.end()
    death = next(death for death in evidence.died if death.pid == job.pids[1])
    assert (death.rank, death.local_rank, death.attempt, death.signal) == (5, 1, 2, 9)


RENAMED = (
    "import ctypes, os, sys, time\n"
    "ctypes.CDLL(None).prctl(15, 'x\\x1b[2J\\n\\u202e'.encode(), 0, 0, 0); time.sleep(0.1)\n"
    "os.kill(int(sys.argv[1]), 9); print('done', flush=True); sys.stdin.readline()"
)


@needs_proc_events
@needs_tracefs
def test_a_senders_name_cannot_paint(launch: Launch) -> None:
    job = launch(RANK)
    sender = subprocess.Popen(
        [sys.executable, "-S", "-c", RENAMED, str(job.pids[0])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert sender.stdout is not None and sender.stdout.readline() == b"done\n"
        assert f"sent by pid {sender.pid} (x\\x1b[2J\\n\\u202e); whole" in job.text(0)
    finally:
        sender.communicate()
    job.end()


@needs_proc_events
def test_who_sent_it_is_not_guessed(start, launch: Launch, tmp_path: Path) -> None:
    job = launch(RANK, env={})
    job.process.kill()
    job.process.wait()
    (tmp_path / "folder" / "evidence.jsonl").unlink()
    again = start(
        sys.executable, "-S", "-c", LAUNCHER, str(tmp_path / "errors"), json.dumps([RANK]),
        options=["--no-trace"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    pid = int(again.stdout.readline())
    wait_for(lambda: pid in watched_by(again.pid))
    os.kill(pid, signal.SIGKILL)
    wait_for(job.files[0].exists)
    assert "was killed by SIGKILL; who sent it is not known at this moment; whole" in answer(job.files[0])[0]


@needs_proc_events
@needs_tracefs
def test_what_the_launcher_did_itself_has_no_text(launch: Launch) -> None:
    job = launch(RANK, RANK, RANK)
    os.kill(job.pids[0], signal.SIGKILL)
    assert "rank 4" in job.text(0)
    job.say(f"end 1 {int(signal.SIGTERM)}")
    job.say(f"end 2 {int(signal.SIGKILL)}")
    assert (job.wait(1), job.wait(2)) == (-signal.SIGTERM, -signal.SIGKILL)
    evidence = job.end()
    assert len([death for death in evidence.died if death.rank is not None and death.signal]) == 3
    assert not job.files[1].exists() and not job.files[2].exists()


@needs_proc_events
def test_a_later_failure_says_after_whom_and_does_not_look_like_the_first(launch: Launch) -> None:
    leaves = "import os, sys; print('here', flush=True); sys.stdin.readline(); sys.exit(7)"
    hold, release = os.pipe()
    try:
        rank = ["sh", "-c", f"exec {sys.executable} -S -c {json.dumps(leaves)} < /proc/{os.getpid()}/fd/{hold}"]
        job = launch(RANK, rank)
        os.kill(job.pids[0], signal.SIGKILL)
        job.text(0)
        os.write(release, b"go\n")
        text = job.text(1)
    finally:
        os.close(hold)
        os.close(release)
    assert re.match(
        rf"ftforensics: rank 5 \(pid {job.pids[1]}\) ended itself with exit status 7, \d+\.\d\d s after "
        rf"rank 4 \(pid {job.pids[0]}\) had ended; ", text
    )  # fmt: skip
    assert answer(job.files[0])[1] < answer(job.files[1])[1]
    job.end()


@needs_proc_events
def test_of_two_crashes_in_one_second_the_later_end_is_not_said_to_have_followed(launch: Launch) -> None:
    """Which failed first their records tell: to write one takes its time."""
    job = launch(RANK, RANK)
    for pid in job.pids:
        os.kill(pid, signal.SIGSEGV)
    texts = [job.text(0), job.text(1)]
    later = [text for text in texts if "within a second of the end of rank" in text]
    assert len(later) == 1 and not any("had ended" in text for text in texts), texts
    job.end()


@needs_proc_events
def test_switched_off_there_is_no_file(launch: Launch) -> None:
    job = launch(RANK, watched=False, env={"FTFORENSICS_TORCHRUN_SUMMARY": "0"})
    os.kill(job.pids[0], signal.SIGKILL)
    job.wait(0)
    job.end()
    assert os.listdir(job.files[0].parent) == []


@needs_proc_events
def test_a_relative_path_is_torchruns(launch: Launch, tmp_path: Path) -> None:
    """With a relative --log-dir; the rank has gone to another directory meanwhile."""
    (tmp_path / "elsewhere").mkdir()
    job = launch([sys.executable, "-S", "-c", "import os; os.chdir('elsewhere'); " + SLEEP], errors="errors")
    os.kill(job.pids[0], signal.SIGKILL)
    assert "rank 4" in job.text(0)
    job.end()


@needs_proc_events
@pytest.mark.parametrize("what", ["file", "link"])
def test_what_is_there_is_left_alone(launch: Launch, tmp_path: Path, what: str) -> None:
    job = launch(RANK)
    if what == "file":
        job.files[0].write_text("its own")
    else:
        job.files[0].symlink_to(tmp_path / "elsewhere")
    os.kill(job.pids[0], signal.SIGKILL)
    job.wait(0)
    job.end()
    assert os.listdir(job.files[0].parent) == ["error.json"]
    if what == "file":
        assert job.files[0].read_text() == "its own"
    else:
        assert job.files[0].is_symlink() and not (tmp_path / "elsewhere").exists()


@needs_proc_events
@needs_root
@pytest.mark.parametrize("owner", ["another user's", "everybody's"])
def test_a_folder_that_is_not_the_jobs_own_gets_nothing(launch: Launch, owner: str) -> None:
    """The path comes from the environment: anybody could have put it there."""
    job = launch(RANK)
    if owner == "another user's":
        os.chown(job.files[0].parent, 65534, 65534)
    else:
        job.files[0].parent.chmod(0o777)
    os.kill(job.pids[0], signal.SIGKILL)
    job.wait(0)
    job.end()
    assert os.listdir(job.files[0].parent) == []


@needs_proc_events
@needs_unshare
@pytest.mark.parametrize("how", ["unshare --mount", "setpriv --reuid 65534 --clear-groups"])
def test_for_another_user_or_other_mounts_nothing_is_written(launch: Launch, how: str) -> None:
    job = launch([*how.split(), *RANK], watched=False)
    os.kill(job.pids[0], signal.SIGKILL)
    job.wait(0)
    job.end()
    assert os.listdir(job.files[0].parent) == []


@needs_proc_events
def test_a_worker_of_a_rank_is_not_the_rank(launch: Launch) -> None:
    script = "import os, time\nif os.fork(): print('here', flush=True)\ntime.sleep(60)"
    job = launch([sys.executable, "-S", "-c", script])
    worker = child_of(job.pids[0])
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: f'"died", "pid": {worker}' in (job.folder / "evidence.jsonl").read_text())
    assert not job.files[0].exists()
    job.say(f"end 0 {int(signal.SIGTERM)}")
    job.wait(0)
    job.end()


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@needs_proc_events
@needs_tracefs
def test_a_shell_around_the_rank_tells_how_its_command_ended(launch: Launch) -> None:
    job = launch(["sh", "-c", f'{sys.executable} -S -c "{SLEEP}"; exit $?'])
    inner = child_of(job.pids[0])
    os.kill(inner, signal.SIGKILL)
    text = job.text(0)
    assert f"rank 4 (pid {job.pids[0]}) ended itself with exit status 137, as its " in text
    assert f"(pid {inner}) was killed by SIGKILL, sent by pid {os.getpid()} (" in text
    job.end()


ALLOCATE = (
    "import mmap, os, sys; print('here', flush=True)\n"
    "open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
    "block = mmap.mmap(-1, 256 << 20)\n"
    "for at in range(0, 256 << 20, 4096): block[at] = 1\n"
)


@needs_cgroup_v1_memory
@needs_proc_events
def test_the_oom_killers_own_line_is_told(launch: Launch) -> None:
    group = CGROUP_V1_MEMORY / f"ftf-words-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        wait = "import time; time.sleep(1)\n"  # until the kernel's log is followed
        job = launch([sys.executable, "-S", "-c", wait + ALLOCATE, str(group)], armed=False)
        text = job.text(0)
        evidence = job.end()
        if evidence.started is None or not evidence.started.kernel_log:
            pytest.skip("the kernel log could not be followed")
        begun = f"ftforensics: rank 4 (pid {job.pids[0]}) was killed by SIGKILL: by the kernel's OOM killer"
        limited = any("oom-kill:constraint" in line.record for line in evidence.kernel)  # at most 10 in 5 s
        assert text.startswith(begun + (f", memory limit of /{group.name}; " if limited else ""))
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


@needs_proc_events
def test_every_death_has_its_rank_and_the_order_is_the_true_one(launch: Launch) -> None:
    """Five milliseconds apart, which is less than between two looks at the kernel's events."""
    order = [2, 0, 3, 1]
    job = launch(RANK, RANK, RANK, RANK)
    for rank in order:
        fd = os.pidfd_open(job.pids[rank])
        os.kill(job.pids[rank], signal.SIGKILL)
        assert_ended(fd)
        time.sleep(0.005)  # the distance that is tested, not a wait for anything
    for rank in range(4):
        assert job.wait(rank) == -signal.SIGKILL
    evidence = job.end()
    deaths = sorted((death for death in evidence.died if death.pid in job.pids), key=lambda death: death.at)
    assert [death.pid for death in deaths] == [job.pids[rank] for rank in order]
    assert [(death.rank, death.local_rank) for death in deaths] == [(rank + 4, rank) for rank in order]
    assert {death.signal for death in deaths} == {9} and len({death.ppid for death in deaths}) == 1
    assert all(later.at - sooner.at >= 0.004 for sooner, later in itertools.pairwise(deaths))
    assert all(death.attempt == 2 and death.start_ticks and death.comm for death in deaths)


def assert_ended(pidfd: int) -> None:
    import select

    try:
        assert select.select([pidfd], [], [], PATIENCE)[0]
    finally:
        os.close(pidfd)


def test_without_the_kernels_events_the_file_is_written_as_well(start, tmp_path: Path) -> None:
    """In a pid namespace, as in a container: what is seen is that it is dead, and its status when we are faster than
    who waits for it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes a pid namespace")
    ready = "import time; time.sleep(2.5); " + SLEEP  # found by looking around once a second
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", *RUN, "--dir", str(tmp_path / "folder"), "--",
         sys.executable, "-S", "-c", LAUNCHER, str(tmp_path / "errors"), json.dumps([[*RANK[:3], ready]])],
        cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        inner = int(process.stdout.readline())
        (outer,) = [
            int(status.parent.name)
            for status in Path("/proc").glob("[0-9]*/status")
            if f"NSpid:\t{status.parent.name}\t{inner}\n" in readable(status) and "errors" in str(environ_of(status))
        ]
        os.kill(outer, signal.SIGKILL)
        file = tmp_path / "errors" / "0" / "error.json"
        wait_for(file.exists)
        assert f"rank 4 (pid {inner}) was killed by SIGKILL; who sent it is not known" in answer(file)[0]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(PATIENCE)


def readable(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def environ_of(status: Path) -> bytes:
    try:
        return (status.parent / "environ").read_bytes()
    except OSError:
        return b""


# The real torchrun. Where it looks once in two seconds, the file is always there before.

TRAIN = """
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record

def main():
    if os.environ["RANK"] == "1":
        {fails}
    time.sleep(60)  # until torchrun ends it

{run}
"""
FAILS = {
    "segv": ("import ctypes; ctypes.string_at(0)", "died of SIGSEGV, native-fault (likely); ftforensics analyze "),
    "kill": ("os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
    "exit": ("sys.exit(3)", "ended itself with exit status 3"),
}


def torchrun(tmp_path: Path, program: str, *before: str, **env: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(program)
    command = [*before, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    return subprocess.run(
        [*command, "--monitor-interval", "2", "train.py"],
        cwd=tmp_path, env=environment(**env), capture_output=True, text=True, timeout=110, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def summary(stderr: str) -> str:
    """torchrun's own, without what differs from run to run."""
    text = stderr[stderr.index("train.py FAILED") :]
    # Its rules are as long as the longest line, which has pids in it.
    return re.sub(r"-{5,}", "--", re.sub(r"\d\d+", "N", text[: text.index("====", text.index("Root Cause"))]))


@needs_torch
@needs_proc_events
@pytest.mark.torch
@pytest.mark.parametrize("recorded", ["plain", "recorded"])
@pytest.mark.parametrize("how", FAILS)
def test_torchruns_summary(tmp_path: Path, how: str, recorded: str) -> None:
    fails, wanted = FAILS[how]
    program = TRAIN.format(fails=fails, run="record(main)()" if recorded == "recorded" else "main()")
    done = torchrun(tmp_path, program, *RUN, "--dir", str(tmp_path / "folder"), "--")
    assert done.returncode == 1
    cause = done.stderr[done.stderr.index("Root Cause") :]
    assert "rank      : 1 (local_rank: 1)" in cause
    assert f"exitcode  : { {'segv': -11, 'kill': -9, 'exit': 3}[how] } (pid: " in cause
    (line,) = [line for line in cause.splitlines() if line.startswith("  traceback : ")]
    assert line.startswith("  traceback : ftforensics: rank 1 ") and wanted in line
    if how == "segv":
        assert "\n    at string_at (ctypes/__init__.py" in cause


@needs_torch
@needs_proc_events
@pytest.mark.torch
def test_switched_off_torchruns_summary_is_its_own(tmp_path: Path) -> None:
    program = TRAIN.format(fails="os.kill(os.getpid(), 9)", run="main()")
    alone = torchrun(tmp_path, program)
    watched = torchrun(
        tmp_path, program, *RUN, "--dir", str(tmp_path / "folder"), "--", FTFORENSICS_TORCHRUN_SUMMARY="0"
    )
    assert watched.returncode == alone.returncode == 1
    assert summary(watched.stderr) == summary(alone.stderr)

"""Signals, environment, relatives: what else a job could notice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from conditions import JEMALLOC, needs_jemalloc, needs_unshare
from supervised import PATIENCE, RUN, environment, wait_for

STATE = """
import json, os, signal, sys
text = open("/proc/self/status").read()
state = {line.split(":")[0]: line.split()[1] for line in text.splitlines() if line[:3] in ("Sig", "NoN", "Sec")}
state.pop("SigQ")
state["fds"] = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1]
state["umask"] = os.umask(0)
state["leads"] = os.getsid(0) == os.getpid()
state["nice"] = os.nice(0)
print(json.dumps(state))
"""


def state(tmp_path: Path, under: list[str], preparation: str) -> dict[str, object]:
    """What a process finds after `preparation` in a parent."""
    script = f"import os, signal, sys\n{preparation}\nos.execvp(sys.argv[1], sys.argv[1:])"
    # No shell between: dash resets SIGCHLD.
    made = subprocess.run(
        [sys.executable, "-S", "-c", script, *under, sys.executable, "-SI", "-c", STATE],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=30,
        restore_signals=False,
    )
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


@pytest.mark.parametrize(
    "preparation",
    [
        "pass",
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",  # nohup
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGQUIT, signal.SIG_IGN)",  # `job &` in sh
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD])",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "os.umask(0o077); os.nice(3)",
        "os.dup2(1, 9, inheritable=True)",
    ],
)
def test_what_is_inherited_arrives(tmp_path: Path, preparation: str) -> None:
    preparation += "; signal.signal(signal.SIGPIPE, signal.SIG_DFL); signal.signal(signal.SIGXFSZ, signal.SIG_DFL)"
    bare = state(tmp_path, [], preparation)
    under = state(tmp_path, [*RUN, "--"], preparation)
    assert under == bare


def test_nohup_outlives_the_hangup(start, tmp_path: Path) -> None:
    """SIGHUP to the whole group: with nohup the job goes on."""
    job = subprocess.Popen(
        ["nohup", *RUN, "--dir", str(tmp_path / "folder"), "--", "sh", "-c", "echo ready; read line; echo $line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        process_group=0 if sys.version_info >= (3, 11) else None,
    )
    assert job.stdout is not None and job.stdin is not None
    assert job.stdout.readline() == b"ready\n"
    os.killpg(job.pid, signal.SIGHUP)
    job.stdin.write(b"alive\n")
    job.stdin.close()
    assert job.stdout.read() == b"alive\n" and job.wait(30) == 0
    job.stdout.close()


COUNT = """
import os, signal, time
got = []
for number in signal.valid_signals() - {9, 19, signal.SIGCHLD}:
    signal.signal(number, lambda number, frame: got.append(int(number)))
os.write(1, b"ready\\n")
while not got:
    time.sleep(0.01)  # not pause(): the signal may have come just before
until = time.monotonic() + 0.4
while (left := until - time.monotonic()) > 0:
    time.sleep(left)
os.write(1, ("%s\\n" % got).encode())
"""


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGUSR2, signal.SIGALRM, signal.SIGABRT,
     signal.SIGXCPU, signal.SIGSEGV, signal.SIGRTMIN, signal.SIGRTMAX],
)  # fmt: skip
@pytest.mark.parametrize("to", ["supervisor", "group"])
def test_a_signal_arrives_once(start, tmp_path: Path, number: int, to: str) -> None:
    """Sent to the supervisor alone it is passed on; sent to the group, the job has got it already."""
    job = start(sys.executable, "-S", "-c", COUNT + "os._exit(1)", stdout=subprocess.PIPE, start_new_session=True)
    assert job.stdout.readline() == b"ready\n"
    if to == "group":
        os.killpg(job.pid, number)
    else:
        os.kill(job.pid, number)
    assert job.stdout.readline() == f"[{int(number)}]\n".encode()
    assert job.wait(30) == 1
    did = [json.loads(line) for line in (tmp_path / "folder" / "evidence.jsonl").read_text().splitlines()]
    told = [(line["signal"], line["did"], line["sender_pid"]) for line in did if line["type"] == "forwarded"]
    wording = "passed on" if to == "supervisor" else "the whole process group got it: left alone"
    assert told == [(int(number), wording, os.getpid())]


def test_orphans_are_named_not_waited_for_and_not_killed(start, tmp_path: Path) -> None:
    until_it_is_one = "until read name < /proc/$!/comm && [ $name = sleep ]; do :; done"
    script = f"sleep 61.5 >/dev/null 2>&1 & {until_it_is_one}; echo $!; exit 4"
    job = start("bash", "-c", script, stdout=subprocess.PIPE)
    orphan = int(job.stdout.readline())
    try:
        assert job.wait(30) == 4
        assert Path(f"/proc/{orphan}/comm").read_text() == "sleep\n"
        lines = [json.loads(line) for line in (tmp_path / "folder" / "evidence.jsonl").read_text().splitlines()]
        named = [(line["pid"], line["argv"]) for line in lines if line["type"] == "orphan"]
        assert named == [(orphan, ["sleep", "61.5"])]
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_an_orphan_that_still_prints_is_heard(start, tmp_path: Path) -> None:
    """What the job left running writes to where it would have written; the copier stays for it."""
    script = f"(read line < {tmp_path}/go; echo late) & exit 0"
    os.mkfifo(tmp_path / "go")
    job = start("bash", "-c", script, stdout=subprocess.PIPE)
    assert job.wait(30) == 0
    with open(tmp_path / "go", "w") as go:
        go.write("go\n")
    assert job.stdout.read() == b"late\n"


@pytest.mark.parametrize("orphan", ["yes", "while :; do echo x; done"], ids=["fast", "slow"])
def test_an_orphan_that_prints_for_ever_holds_nobody(start, orphan: str) -> None:
    job = start(
        "bash", "-c", f"({orphan}) & echo first; sleep 0.2; exit 4", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    begun = time.monotonic()
    read = 0
    while job.poll() is None and time.monotonic() - begun < PATIENCE:
        read += len(os.read(job.stdout.fileno(), 65536))
    assert job.wait(1) == 4
    # Nobody reads any more: it gets SIGPIPE, as it would have.


SURVIVES = """
import os, sys
os.write(1, b"ready\\n")
os.read(0, 1)
for _ in range(200):
    os.write(1, b"x" * 50000)
os.write(2, b"end\\n")
open(sys.argv[1], "w").write("ended well")
"""


def test_the_supervisors_death_is_not_the_jobs(start, tmp_path: Path) -> None:
    """kill -9 of the supervisor: no signal, no blocked write, all of the output."""
    end = tmp_path / "end"
    job = start(
        sys.executable, "-c", SURVIVES, str(end), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert job.stdout.readline() == b"ready\n"
    job.kill()
    assert job.wait(30) == -signal.SIGKILL
    job.stdin.write(b"g")
    job.stdin.close()
    assert len(job.stdout.read()) == 200 * 50000
    assert job.stderr.read() == b"end\n"
    wait_for(lambda: end.exists() and end.read_text() == "ended well")
    log = (tmp_path / "folder" / "launcher.log").read_bytes
    wait_for(lambda: b"end\n" in log(), 4 * PATIENCE)


def test_a_group_killed_with_its_supervisor_is_told_at_the_next_start(start, job, tmp_path: Path) -> None:
    first = start("sh", "-c", "echo ready; sleep 60", stdout=subprocess.PIPE, start_new_session=True)
    assert first.stdout.readline() == b"ready\n"
    wait_for(lambda: b'"started"' in (tmp_path / "folder" / "evidence.jsonl").read_bytes())
    during = job("true")
    assert b"previous attempt" not in during.err, "it still runs"
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    after = job("true")
    assert after.err.startswith(b"ftforensics: previous attempt:") and b"ftforensics analyze" in after.err
    assert after.status == 0


@needs_jemalloc
def test_the_users_allocator_stays_first(job) -> None:
    """An allocator that comes second in LD_PRELOAD may be none."""
    look = """
import os
print([line.split()[-1] for line in open('/proc/self/maps') if 'jemalloc' in line][:1], os.environ['LD_PRELOAD'])
"""
    ended = job(sys.executable, "-c", look, env={"LD_PRELOAD": str(JEMALLOC)})
    assert ended.status == 0, ended.err
    libraries, preloaded = ended.out.decode().split("] ")
    assert str(JEMALLOC) in os.path.realpath(preloaded.split(":")[0].strip()) or preloaded.startswith(str(JEMALLOC))
    assert "jemalloc" in libraries


def test_no_zombies_and_no_helpers_are_left(job, tmp_path: Path) -> None:
    assert job("sh", "-c", "exit 1").status == 1
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile
            if str(tmp_path).encode() in (process / "cmdline").read_bytes():
                found.append((process / "comm").read_text())
    assert found == []


@needs_unshare
def test_a_stopped_container_reaches_the_job(tmp_path: Path) -> None:
    """`docker stop` signals pid 1 alone, which is us."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", *RUN, "--quiet", "--dir", str(tmp_path / "folder"), "--"]
    with subprocess.Popen(
        [*command, sys.executable, "-S", "-c", COUNT + "os._exit(1)"], stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (supervisor,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(supervisor), signal.SIGTERM)
        assert process.stdout.readline() == b"[15]\n"
    assert process.returncode == 1


@needs_unshare
def test_pid_1_reaps(job) -> None:
    """Orphans of the job would stay zombies for ever."""
    script = "for i in 1 2 3 4 5; do (sleep 0.1 &) ; done; sleep 1; grep -l '(zombie)' /proc/[0-9]*/status; exit 0"
    ended = job("bash", "-c", script, wrapper=["unshare", "--pid", "--fork", "--mount-proc"])
    assert (ended.status, ended.out) == (0, b"")


DIES_WITH_PARENT = """
import ctypes, os, sys
made = os.fork()
if made == 0:
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    os.execv(sys.argv[1], sys.argv[1:])
sys.stdin.read()
"""


def test_who_is_to_die_with_the_parent_does(tmp_path: Path) -> None:
    """PR_SET_PDEATHSIG, as launchers set it for their workers: the kernel kills us alone."""
    command = [*RUN, "--quiet", "--dir", str(tmp_path / "folder"), "--", "sh", "-c", "echo $$; exec sleep 60"]
    launcher = subprocess.Popen(
        [sys.executable, "-S", "-c", DIES_WITH_PARENT, *command],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert launcher.stdin is not None and launcher.stdout is not None
    worker = Path(f"/proc/{int(launcher.stdout.readline())}/stat")
    launcher.kill()
    launcher.wait()
    launcher.stdin.close()
    launcher.stdout.close()
    wait_for(lambda: not worker.exists() or ") Z " in worker.read_text())


@pytest.mark.parametrize("locale", [[], ["LC_CTYPE=C"], ["LC_ALL=C"], ["LANG=POSIX"]])
def test_the_environment_is_what_it_was(job, locale: list[str]) -> None:
    """Without a locale (cron, `env -i`) Python writes one of its own into the environment."""
    given = sorted([*locale, f"PATH={os.environ['PATH']}", f"PYTHONPATH={environment()['PYTHONPATH']}", "A==\n b"])
    ended = job("env", "-0", wrapper=["env", "-i", *given])
    ours = (b"FTFORENSICS_RUN=", b"FTFORENSICS_DIR=", b"LD_PRELOAD=")
    found = sorted(os.fsdecode(entry) for entry in ended.out.split(b"\0")[:-1] if not entry.startswith(ours))
    assert found == given

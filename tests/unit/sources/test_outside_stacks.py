"""Stacks from outside: the real tools on a real process, refusals, hangs, a process left stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conditions import needs_py_spy, needs_pystack
from ftforensics.host.host import Completed, Host, Refusal, run_command
from ftforensics.model.helper_report import HelperThread
from ftforensics.sources.outside_stacks import _stopped, outside_stacks

PARKED = """
import ctypes, threading, sys
libc = ctypes.CDLL(None)
def worker_waits(): libc.pause()
def outer(): inner()
def inner():
    print("ready", flush=True)
    libc.pause()
threading.Thread(target=worker_waits, name="worker", daemon=True).start()
outer()
"""

# A thread that never ran Python, in a function of its own.
C_THREAD = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
static void *c_waits(void *unused) { for (;;) pause(); return unused; }
void start(const char *name) {
    pthread_t thread;
    pthread_create(&thread, 0, c_waits, 0);
    pthread_setname_np(thread, name);
}
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def parked() -> Iterator[subprocess.Popen[str]]:
    process = start(PARKED)
    yield process
    process.kill()
    process.communicate()


def without(*names: str) -> Host:
    """This machine with tools that do not start."""

    def run(argv: Sequence[str], timeout: float, limit: int) -> Completed:
        if os.path.basename(argv[0]) in names:
            raise Refusal(argv[0], "No such file or directory", 2)
        return run_command(argv, timeout, limit)

    return Host(run=run)


def replaced_by(command: list[str]) -> Host:
    return Host(run=lambda _, timeout, limit: run_command(command, timeout, limit))


def functions(threads: list[HelperThread], name: str) -> list[str | None]:
    """Of the thread that holds a frame called `name`, innermost first."""
    (thread,) = [thread for thread in threads if any(frame.function == name for frame in thread.frames)]
    return [frame.function for frame in thread.frames]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@needs_py_spy
def test_py_spy(parked: subprocess.Popen[str]) -> None:
    stacks = outside_stacks(parked.pid, Host())
    assert (stacks.tool, stacks.gap) == ("py-spy", None)
    assert stacks.version
    main = functions(stacks.threads, "inner")
    assert main.index("pause") < main.index("inner") < main.index("outer")
    assert "worker" in [thread.name for thread in stacks.threads]
    assert {thread.tid for thread in stacks.threads} == {int(tid) for tid in os.listdir(f"/proc/{parked.pid}/task")}
    assert state(parked.pid) == "S"


@needs_pystack
def test_pystack_when_py_spy_is_not_there(parked: subprocess.Popen[str]) -> None:
    stacks = outside_stacks(parked.pid, without("py-spy"))
    assert (stacks.tool, stacks.gap) == ("pystack", None)
    main = functions(stacks.threads, "inner")
    assert main.index("pause") < main.index("inner") < main.index("outer")
    assert len(stacks.threads) == 2
    assert state(parked.pid) == "S"


def start_with_c_thread(folder: Path, name: str) -> subprocess.Popen[str]:
    library = folder / "libthread.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O0", "-x", "c", "-", "-o", library], input=C_THREAD, text=True, check=True
    )
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).start(sys.argv[2].encode())\n" + PARKED
    return start(program, str(library), name)


@needs_py_spy
@needs_pystack
def test_a_thread_that_python_does_not_know(tmp_path: Path) -> None:
    process = start_with_c_thread(tmp_path, "pt_autograd_0")
    try:
        stacks = outside_stacks(process.pid, Host())
        assert (stacks.tool, stacks.gap) == ("py-spy and pystack", None)
        assert "inner" not in functions(stacks.threads, "c_waits")
        assert len(stacks.threads) == 3

        alone = outside_stacks(process.pid, without("pystack"))
        assert alone.tool == "py-spy"
        assert alone.gap and alone.gap.why.startswith("1 of 3 threads are not shown")
    finally:
        process.kill()
        process.communicate()


@needs_py_spy
def test_our_own_thread_is_not_worth_another_look(tmp_path: Path) -> None:
    process = start_with_c_thread(tmp_path, "ftforensics")
    try:
        stacks = outside_stacks(process.pid, Host())
        assert (stacks.tool, stacks.gap, len(stacks.threads)) == ("py-spy", None, 2)
    finally:
        process.kill()
        process.communicate()


# Runs a command that may not trace: what a container's seccomp profile does, also to root.
NO_PTRACE = r"""
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **arguments) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {5, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 99;
    execv(arguments[1], arguments + 1);
    return 98;
}
"""


@needs_py_spy
@needs_pystack
@pytest.mark.parametrize("missing", ["", "py-spy"], ids=["py-spy", "pystack"])
def test_ptrace_refused(parked: subprocess.Popen[str], tmp_path: Path, missing: str) -> None:
    refuser = tmp_path / "refuser"
    subprocess.run(["gcc", "-x", "c", "-", "-o", refuser], input=NO_PTRACE, text=True, check=True)

    def run(argv: Sequence[str], timeout: float, limit: int) -> Completed:
        if os.path.basename(argv[0]) == missing:
            raise Refusal(argv[0], "not there")
        return run_command([str(refuser), *argv], timeout, limit)

    stacks = outside_stacks(parked.pid, Host(run=run))
    assert stacks.threads == []
    assert stacks.gap and stacks.gap.source == "ptrace", stacks.gap
    assert stacks.gap.grant and "SYS_PTRACE" in stacks.gap.grant
    assert state(parked.pid) == "S"


def test_no_tool_at_all(parked: subprocess.Popen[str], tmp_path: Path) -> None:
    stacks = outside_stacks(parked.pid, Host(root=tmp_path))
    assert stacks.threads == [] and stacks.tool is None
    assert stacks.gap and "py-spy is not installed" in stacks.gap.why
    assert stacks.gap.grant == "pip install 'ftforensics[hang]'"


@needs_py_spy
def test_a_tool_that_hangs_is_cut(parked: subprocess.Popen[str]) -> None:
    start = time.monotonic()
    stacks = outside_stacks(parked.pid, replaced_by(["sleep", "60"]))
    assert time.monotonic() - start < 8
    assert stacks.threads == []
    assert stacks.gap and "py-spy: no answer within 3 s" in stacks.gap.why


@needs_py_spy
def test_a_tool_that_prints_nonsense(parked: subprocess.Popen[str]) -> None:
    stacks = outside_stacks(parked.pid, replaced_by(["echo", "hello"]))
    assert stacks.threads == []
    assert stacks.gap and "not py-spy's JSON" in stacks.gap.why


@needs_py_spy
def test_what_a_tool_left_stopped_goes_on(parked: subprocess.Popen[str]) -> None:
    outside_stacks(parked.pid, replaced_by(["sh", "-c", f"kill -STOP {parked.pid}; exit 1"]))
    deadline = time.monotonic() + 5
    while state(parked.pid) != "S" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state(parked.pid) == "S"


@pytest.mark.parametrize(
    ("pending", "states", "stopping"),
    [("40000", "SS", True), ("0", "ST", True), ("0", "TT", True), ("0", "SS", False), ("20000", "SS", False)],
    ids=["waits", "one thread has", "all have", "no", "another signal waits"],
)
def test_a_process_that_is_about_to_stop(tmp_path: Path, pending: str, states: str, stopping: bool) -> None:
    """Bit 18 is SIGSTOP's, 19; who sent it goes on before it has come to every thread."""
    for thread, state_of_thread in enumerate(states, start=7):
        (tmp_path / f"proc/7/task/{thread}").mkdir(parents=True)
        (tmp_path / f"proc/7/task/{thread}/stat").write_text(f"{thread} (a) b) {state_of_thread} 1 7\n")
    (tmp_path / "proc/7/status").write_text(f"Name:\ta\nSigPnd:\t{0:016x}\nShdPnd:\t{pending:0>16}\n")
    assert _stopped(7, Host(root=tmp_path)) is stopping


@needs_py_spy
def test_what_was_stopped_before_stays_stopped(parked: subprocess.Popen[str]) -> None:
    os.kill(parked.pid, signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while state(parked.pid) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    outside_stacks(parked.pid, replaced_by(["sh", "-c", "exit 1"]))
    assert state(parked.pid) == "T"


@needs_py_spy
def test_a_process_that_is_gone() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    stacks = outside_stacks(gone.pid, Host())
    assert stacks.threads == [] and stacks.gap and stacks.gap.source == "stacks"

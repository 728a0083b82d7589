"""Who sent a signal: real signals of real processes, through a trace that is really armed."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conditions import needs_root, needs_tracefs, needs_unshare
from ftforensics.capture import procfs
from ftforensics.parsers.trace_pipe import SentLine, TracePipe
from ftforensics.supervise import senders
from ftforensics.supervise.senders import Senders, open_tracing
from ftforensics.supervise.tracefs import private_mount

# A trace sees the signals of the whole machine, also those of a flood.
pytestmark = pytest.mark.xdist_group("signals")

SI_USER, SI_KERNEL, SI_TKILL = 0, 128, -6
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15

libc = ctypes.CDLL(None)


class Gaps(list[tuple[str, "str | None"]]):
    def __call__(self, why: str, grant: str | None) -> None:
        self.append((why, grant))


@pytest.fixture
def place() -> Iterator[str]:
    """tracefs through a mount that is attached nowhere: a run of the tests that is cut short leaves none behind."""
    mounted = private_mount()
    try:
        yield f"/proc/{os.getpid()}/fd/{mounted}"
    finally:
        os.close(mounted)


@pytest.fixture
def trace(place: str) -> Iterator[Senders]:
    gaps = Gaps()
    opened = open_tracing(gaps, [place])
    assert opened is not None, gaps
    try:
        yield opened
    finally:
        opened.close()
    assert not os.path.exists(opened.path)
    # The test of a flood, or anybody else on this machine, may make the kernel drop some.
    assert [why for why, _ in gaps if "dropped" not in why] == []


def forked(trace: Senders | None, act: Callable[[], object], name: bytes = b"") -> int:
    """A child that does `act`, under a name of its own. It says when it is ready."""
    ready, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if trace is not None:
                os.close(trace.fd)
            if name:
                libc.prctl(PR_SET_NAME, name, 0, 0, 0)
            os.write(say, b".")
            act()
        finally:
            os._exit(0)
    assert os.read(ready, 1) == b"."
    os.close(ready)
    os.close(say)
    return pid


def of(trace: Senders, target: int) -> SentLine:
    """What was sent to `target`; other people's signals on this machine are passed over."""
    (found,) = [line for line in trace.read() if line.target_tid == target]
    return found


def wait(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


@needs_tracefs
def test_kill_names_its_sender(trace: Senders) -> None:
    victim = forked(trace, signal.pause, b"victim")
    before = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    after = time.monotonic()
    assert wait(victim) == signal.SIGKILL
    readable, _, _ = select.select([trace.fd], [], [], 10)
    assert readable
    line = of(trace, victim)
    assert (line.signal, line.code, line.result) == (signal.SIGKILL, SI_USER, 0)
    assert (line.target_comm, line.sender_tid, line.sender_pid) == ("victim", os.getpid(), os.getpid())
    assert line.sender_comm == Path("/proc/self/comm").read_text().rstrip("\n")
    assert before - 1e-5 <= line.at <= after + 1e-5  # printed in whole microseconds
    assert f"pid={victim} " in line.text


@needs_tracefs
def test_the_thread_that_sends_is_led_back_to_its_process(trace: Senders) -> None:
    victim = forked(trace, signal.pause)
    tids = []

    def send() -> None:
        libc.prctl(PR_SET_NAME, b"sending thread", 0, 0, 0)
        tids.append(threading.get_native_id())
        os.kill(victim, signal.SIGKILL)
        wait(victim)
        lines.append(of(trace, victim))

    lines: list[SentLine] = []
    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert lines[0].sender_comm == "sending thread"
    assert [lines[0].sender_tid] == tids != [os.getpid()]
    assert lines[0].sender_pid == os.getpid()


@needs_tracefs
@pytest.mark.parametrize(
    "name", [b"weird 1] pid=3", b"-5 [000] x: ) a", b"a\nb", b"\xff\xe9 \tta\nb", b" comm=x pid=1 g"]
)
def test_any_name_is_read_whole(name: bytes, trace: Senders) -> None:
    """prctl(PR_SET_NAME) takes any bytes, and the kernel prints them as they are."""
    victim = forked(trace, signal.pause, name)

    def send() -> None:
        os.kill(victim, signal.SIGKILL)

    sender = forked(trace, send, name)
    wait(victim)
    wait(sender)
    line = of(trace, victim)
    shown = name.decode("utf-8", "backslashreplace")
    # The kernel pads the sender's name with blanks in front, so blanks that belong to it cannot be told from those.
    assert (line.sender_comm, line.target_comm) == (shown.lstrip(" "), shown)
    assert line.sender_tid == sender
    assert line.sender_pid is None  # gone, and reaped


@needs_tracefs
def test_killpg_is_one_signal_for_each_member(trace: Senders) -> None:
    ready, say = os.pipe()

    def lead() -> None:
        os.setpgid(0, 0)
        member = forked(None, signal.pause)
        os.write(say, f"{member}\n".encode())
        signal.pause()

    leader = forked(trace, lead)
    member = int(os.read(ready, 32))
    os.killpg(leader, signal.SIGKILL)
    wait(leader)
    lines = [line for line in trace.read() if line.target_tid in (leader, member)]
    assert {line.target_tid for line in lines} == {leader, member}
    assert {(line.code, line.sender_tid) for line in lines} == {(SI_USER, os.getpid())}


@needs_tracefs
def test_tgkill_is_by_a_process_too(trace: Senders) -> None:
    victim = forked(trace, signal.pause)
    tgkill = {"x86_64": 234, "aarch64": 131}[platform.machine()]  # glibc has no wrapper before 2.30
    assert libc.syscall(tgkill, victim, victim, signal.SIGKILL) == 0
    wait(victim)
    line = of(trace, victim)
    assert (line.code, line.sender_pid) == (SI_TKILL, os.getpid())


@needs_tracefs
def test_a_cpu_limit_is_the_kernels(trace: Senders) -> None:
    def burn() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
        while True:
            pass

    victim = forked(trace, burn)
    assert wait(victim) == signal.SIGKILL
    line = of(trace, victim)
    assert (line.code, line.sender_tid) == (SI_KERNEL, victim)  # whoever ran: here always the victim


@needs_tracefs
def test_sigterm_is_traced_and_others_are_not(trace: Senders) -> None:
    def wait_on() -> None:
        while True:
            signal.pause()  # readline, once somebody imports it, has a handler for SIGWINCH

    victim = forked(trace, wait_on)
    os.kill(victim, signal.SIGWINCH)
    os.kill(victim, signal.SIGTERM)
    assert wait(victim) == signal.SIGTERM
    assert of(trace, victim).signal == signal.SIGTERM


@needs_tracefs
def test_the_parents_death_signal_names_the_parent(trace: Senders) -> None:
    """PR_SET_PDEATHSIG looks like a kill(2) by the parent, at the moment of the parent's own end (seen on 6.18)."""
    ready, say = os.pipe()

    def parent() -> None:
        def child() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.write(say, str(os.getpid()).encode())
            signal.pause()

        forked(None, child)
        signal.pause()

    between = forked(trace, parent)
    child = int(os.read(ready, 32))
    os.kill(between, signal.SIGUSR1)  # SIGINT may be ignored: a background job of a shell
    wait(between)
    line = of(trace, child)
    assert (line.code, line.sender_tid) == (SI_USER, between)


@needs_tracefs
@needs_unshare
def test_pids_are_the_initial_namespaces(trace: Senders) -> None:
    """Inside, the victim is some small number; the trace says the number that this namespace knows it by."""
    script = "sleep 60 & until grep -q sleep /proc/$!/comm; do :; done; echo ready; read go; "
    script += "kill -9 $!; wait $!; echo done; read go"
    inside = subprocess.Popen(
        ["unshare", "-p", "-f", "--mount-proc", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert inside.stdin is not None and inside.stdout is not None
    assert inside.stdout.readline() == "ready\n"
    (shell,) = map(int, Path(f"/proc/{inside.pid}/task/{inside.pid}/children").read_text().split())
    (sleeper,) = map(int, Path(f"/proc/{shell}/task/{shell}/children").read_text().split())
    inside.stdin.write("go\n")
    inside.stdin.flush()
    assert inside.stdout.readline() == "done\n"
    line = of(trace, sleeper)
    assert (line.code, line.sender_tid, line.sender_pid, line.target_comm) == (SI_USER, shell, shell, "sleep")
    # The end of a namespace's init ends all its members, with no kill(2) by anybody.
    inside.communicate("go\n")


LOCKED = """
import os, sys
from ftforensics.supervise.senders import open_tracing
opened = open_tracing(print, [sys.argv[1]])
print(opened.path, flush=True)
sys.stdin.read()
"""


def supervisor(place: str) -> tuple[subprocess.Popen[str], str]:
    started = subprocess.Popen(
        [sys.executable, "-c", LOCKED, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    return started, started.stdout.readline().strip()


@needs_tracefs
def test_what_a_killed_supervisor_left_is_removed_and_what_is_in_use_stays(place: str) -> None:
    dead, left = supervisor(place)
    living, used = supervisor(place)
    dead.kill()
    dead.communicate()
    try:
        assert os.path.isdir(left)
        opened = open_tracing(Gaps(), [place])
        assert opened is not None
        assert not os.path.exists(left)
        assert os.path.isdir(used) and os.path.isdir(opened.path)
        opened.close()
    finally:
        living.kill()
        living.communicate()
        senders.remove_left_over(place)
    assert not os.path.exists(used)


@needs_tracefs
def test_a_name_that_is_taken_is_passed_by(place: str) -> None:
    """The same pid and start time in another pid namespace, or a second trace of this process."""
    first, second = open_tracing(Gaps(), [place]), open_tracing(Gaps(), [place])
    assert first is not None and second is not None
    assert first.path != second.path
    for opened in (first, second):
        opened.close()
        assert not os.path.exists(opened.path)


@needs_tracefs
def test_nobody_elses_trace_is_touched(place: str) -> None:
    before = Path(place, "set_event").read_text(), Path(place, "trace_clock").read_text()
    opened = open_tracing(Gaps(), [place])
    assert opened is not None
    assert (Path(place, "set_event").read_text(), Path(place, "trace_clock").read_text()) == before
    opened.close()


@needs_tracefs
def test_a_flood_is_said_to_be_one(place: str) -> None:
    gaps = Gaps()
    opened = open_tracing(gaps, [place])
    assert opened is not None
    try:
        # To a process that ignores it: each is traced (res=1, ignored), nobody dies.
        deaf = forked(opened, lambda: (signal.signal(signal.SIGTERM, signal.SIG_IGN), signal.pause()))
        for _ in range(3000):
            os.kill(deaf, signal.SIGTERM)
        read = len(opened.read())
        os.kill(deaf, signal.SIGKILL)
        wait(deaf)
        assert 0 < read < 3000
        opened.read()
        assert [why for why, _ in gaps] == ["the kernel dropped traced signals, more came than its buffer holds"]
    finally:
        opened.close()


@pytest.mark.parametrize(
    ("code", "said"), [(errno.ENOSYS, "is not mounted"), (errno.ENODEV, "this kernel has no tracefs")]
)
def test_without_tracefs_there_is_a_gap_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def refused() -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(senders, "private_mount", refused)
    gaps = Gaps()
    assert open_tracing(gaps, [str(tmp_path / "tracing"), str(tmp_path / "debug")]) is None
    ((why, grant),) = gaps
    assert "a SIGKILL" in why
    if code == errno.ENODEV:
        assert said in why and grant is None
    elif os.geteuid() == 0:
        assert said in why and grant == f"mount -t tracefs nodev {tmp_path}/tracing"
    else:
        assert grant == senders.AS_ROOT


@needs_root
def test_where_tracefs_is_not_mounted_a_mount_of_our_own_serves_and_nobody_sees_it(tmp_path: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    gaps = Gaps()
    tracing = open_tracing(gaps, [str(tmp_path / "nowhere")])
    assert tracing is not None and not list(gaps)
    try:
        assert Path("/proc/self/mountinfo").read_text() == before
        victim = subprocess.Popen(["sleep", "60"])
        victim.kill()
        victim.wait()
        assert [line.sender_tid for line in tracing.read() if line.target_tid == victim.pid] == [os.getpid()]
    finally:
        tracing.close()


@needs_tracefs
def test_another_user_is_told_that_only_root_may(place: str) -> None:
    code = "import os, sys; os.setuid(65534)\nfrom ftforensics.supervise.senders import open_tracing\n"
    code += f"assert open_tracing(lambda why, grant: print(why, grant, sep='|'), [{place!r}]) is None"
    done = subprocess.run(
        [sys.executable, "-c", "import ftforensics.supervise.senders\n" + code], capture_output=True, text=True
    )
    assert done.stderr == ""
    why, grant = done.stdout.strip().split("|")
    assert why.startswith("only root may trace signals")
    assert grant == senders.AS_ROOT


@needs_tracefs
def test_a_kernel_without_the_tracepoint_is_a_gap(tmp_path: Path) -> None:
    # Directories in place of tracefs: the pipe's name is not there either.
    (tmp_path / "instances").mkdir()
    gaps = Gaps()
    assert open_tracing(gaps, [str(tmp_path)]) is None
    assert len(gaps) == 1


def test_a_record_may_come_in_pieces_and_between_others() -> None:
    record = b"          python-17943   [001] d..1. 11481.567149: signal_generate: "
    record += b"sig=9 errno=0 code=0 comm=a\nb pid=5 grp=1 res=0\n"
    text = b"garbage\n" + record + b"CPU:1 [LOST 12 EVENTS]\n" + record + b"CPU:0 [LOST EVENTS]\n" + record
    whole = TracePipe()
    assert len(whole.feed(text)) == 3
    assert whole.lost == 13
    for size in (1, 7, 100):
        pieces = TracePipe()
        found = [line for at in range(0, len(text), size) for line in pieces.feed(text[at : at + size])]
        assert [line.target_comm for line in found] == ["a\nb"] * 3
        assert {line.at for line in found} == {11481.567149}


def test_what_is_no_record_is_dropped_and_costs_no_memory() -> None:
    pipe = TracePipe()
    started = time.process_time()
    for _ in range(200):
        assert pipe.feed(b"-1 [000] d 1.0: signal_generate: sig=9 comm=" * 100) == []
    assert time.process_time() - started < 2
    assert len(pipe._rest) <= 400


def test_a_number_that_went_to_a_later_process_is_not_the_senders() -> None:
    ticks = procfs.start_ticks(os.getpid())
    assert ticks is not None
    suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    started = ticks / os.sysconf("SC_CLK_TCK") - suspended
    assert senders._thread_group(os.getpid(), started + 1) == os.getpid()
    assert senders._thread_group(os.getpid(), started - 1) is None

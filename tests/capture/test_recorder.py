"""The flight recorder: what a process leaves when it dies, and that one which ends well leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from conditions import PYTHONS, Interpreter, needs_cc
from jobs import CRASH, Jobs
from rings import Started, eventually, only_ring, read, ring_paths, start

PERIOD = 0.1


def wait_for_ring(folder: Path, pid: int) -> Path:
    """A forked child makes its ring a tenth of a second after the fork."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        found = [*folder.rglob(f"*-{pid}-*.ring")]
        if found and found[0].read_bytes()[:1] == b"F" and read(found[0]).fast:
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"no ring of {pid}")


def kill(job: Started, number: int = signal.SIGKILL) -> float:
    """Returns when, on CLOCK_MONOTONIC."""
    now = time.monotonic()
    os.kill(job.process.pid, number)
    job.process.wait(60)
    return now


def test_a_killed_process_leaves_its_last_minute(python: Interpreter, jobs: Jobs) -> None:
    job = start(
        jobs,
        python,
        """
        import time
        ftforensics.note("epoch 3")
        ftforensics.step(41); ftforensics.step(42)
        with ftforensics.phase("train"), ftforensics.phase("save \\u00fc"):
            block = bytearray(64 << 20)
            time.sleep(0.5)
            tell(time.monotonic())
            time.sleep(60)
        """,
        RANK="3",
        LOCAL_RANK="1",
        WORLD_SIZE="16",
    )
    ready = float(job.line())
    killed = kill(job)
    ring = only_ring(job.folder)
    me = ring.process
    assert (me.pid, me.ppid, me.rank, me.local_rank, me.world_size) == (job.process.pid, os.getpid(), 3, 1, 16)
    assert (me.fork_of, me.worker_of, me.uid, me.nspid) == (None, None, os.getuid(), [job.process.pid])
    assert me.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert me.pid_namespace == os.stat("/proc/self/ns/pid").st_ino
    assert me.exe == os.path.realpath(python.path) and me.argv[-1].endswith("program.py")
    assert me.cgroup == Path("/proc/self/cgroup").read_text().splitlines()
    assert me.comm and me.uid_map and me.start_ticks
    assert (ring.phase, ring.step, ring.note) == ("train > save \u00fc", 42, "epoch 3")
    assert ring.phase_since is not None and ready - 2 < ring.phase_since < ready
    assert [(m.kind, m.text) for m in ring.marks] == [
        ("note", "epoch 3"),
        ("step", "41"),
        ("phase", "train"),
        ("phase", "train > save \u00fc"),
    ]
    assert ring.end.how is None and ring.end.recorder is None and ring.gaps == []
    assert ring.last is not None and killed - 2 * PERIOD < ring.last <= killed
    sample = ring.fast[-1]
    assert sample.rss_anon is not None and sample.rss_anon > 64 << 20
    assert sample.rss_file is not None and sample.rss_shmem == 0 and sample.available is not None
    slow = ring.slow[-1]
    assert slow.reading is not None and slow.reading.mem_total and slow.threads and slow.vm_size
    assert slow.ppid == os.getpid() and slow.oom_score_adj == int(Path("/proc/self/oom_score_adj").read_text())
    wall, monotonic = ring.clocks[-1].realtime, ring.clocks[-1].monotonic
    assert abs((time.time() - wall) - (time.monotonic() - monotonic)) < 0.5


def test_the_file_is_private_and_allocated(jobs: Jobs) -> None:
    job = start(jobs, PYTHONS[0], "tell()")
    job.line()
    (path,) = ring_paths(job.folder)
    found = path.stat()
    assert found.st_mode & 0o777 == 0o600
    assert found.st_blocks * 512 >= found.st_size
    job.go_on()
    assert job.end() == (0, "")


def test_samples_come_on_time_while_another_thread_holds_the_gil(python: Interpreter, jobs: Jobs) -> None:
    job = start(
        jobs,
        python,
        """
        import re, time
        tell()
        re.match(r"(a+)+$", "a" * 24 + "b")  # never lets the lock go
        tell(time.monotonic())
        """,
    )
    job.line()
    job.go_on()
    began, ended = time.monotonic(), float(job.line())
    kill(job)
    during = [s.at for s in only_ring(job.folder).fast if began < s.at < ended]
    gaps = [after - before for before, after in pairwise(during)]
    assert len(gaps) > 3
    assert sorted(gaps)[len(gaps) // 2] < 1.1 * PERIOD


def test_the_pace_quickens_in_a_phase(jobs: Jobs) -> None:
    code = """
        import time
        time.sleep(0.35)
        with ftforensics.phase("save"):
            tell(time.monotonic())
        time.sleep(0.35)
        tell(time.monotonic())
        """
    job = start(jobs, PYTHONS[0], code)
    inside = float(job.line())
    time.sleep(0.5)
    assert only_ring(job.folder).period < 0.06
    job.go_on()
    outside = float(job.line())
    kill(job)
    ring = only_ring(job.folder)
    assert ring.period == PERIOD and ring.phase is None
    faster = [s.at for s in ring.fast if inside < s.at < inside + 0.45]
    assert len(faster) >= 8  # 22 on a machine with nothing else to do
    assert len([s.at for s in ring.fast if outside - 0.3 < s.at < outside]) <= 4


ENDS = {
    "falls off the end": "pass",
    "exits": "import sys; sys.exit(0)",
    "leaves by _exit": "import os; os._exit(256)",
    "becomes another program": "import os; os.execv('/bin/true', ['true'])",
    "exit(3) called by C": "import ctypes; ctypes.CDLL(None).exit(0)",
    "uninstalls": "ftforensics.uninstall(); import os; assert os.listdir() == ['program.py'], os.listdir()",
    "becomes a daemon": """
        import os, time
        inner, outer = os.pipe()  # the program is over when all have closed it
        if os.fork():
            os.close(outer)
            os.read(inner, 1)
            time.sleep(0.2)
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(0.4)
        """,
    "ends in a forked child": "import os, sys, time; pid = os.fork(); time.sleep(0.3); pid and os.wait(); sys.exit(0)",
}


@pytest.mark.parametrize("end", ENDS)
def test_what_ends_well_leaves_nothing(end: str, python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, ENDS[end])
    assert [path.name for path in done.folder.iterdir()] == ["program.py"], done.err


STATUSES = {
    "exits": ("import sys; sys.exit(3)", 3),
    "exits with text": ("import sys; sys.exit('no data')", 1),
    "raises": ("raise KeyError", 1),
    "leaves by _exit": ("import os; os._exit(7)", 7),
    "leaves by a negative _exit": ("import os; os._exit(-1)", 255),
    "exit(3) called by C": ("import ctypes; ctypes.CDLL(None).exit(4)", 4),
    "cannot be finalized": ("import sys; sys.stdout.write('x'); sys.stdout.flush = None", 120),
}


@pytest.mark.parametrize("end", STATUSES)
def test_the_ring_of_another_status_stays_and_tells_it(end: str, python: Interpreter, jobs: Jobs) -> None:
    code, status = STATUSES[end]
    begin = time.monotonic()
    done = jobs.run(python, code)
    assert done.status == status
    ring = only_ring(done.folder)
    assert ring.end.how == "exit" and ring.end.code == status
    assert ring.end.at is not None and begin < ring.end.at < time.monotonic()
    assert not ring.gaps
    (path,) = ring_paths(done.folder)
    assert path.stat().st_blocks * 512 < 128 * 1024  # where the file system can punch holes


def test_the_ring_knows_the_attempt(jobs: Jobs) -> None:
    done = jobs.run(PYTHONS[0], "import sys; sys.exit(3)", TORCHELASTIC_RESTART_COUNT="2")
    assert only_ring(done.folder).process.attempt == 2


def test_an_exec_that_fails_goes_on(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import os, time
        ftforensics.note("still here")
        try:
            os.execv("/nowhere/to/be/found", ["x"])
        except OSError as error:
            os.write(1, b"%d\\n" % error.errno)
        tell(time.monotonic())
        time.sleep(60)
        """
    job = start(jobs, python, code)
    assert job.line() == "2"
    failed = float(job.line())
    time.sleep(0.4)
    kill(job)
    ring = only_ring(job.folder)
    assert ring.end.how is None and ring.note == "still here"
    assert ring.last is not None and ring.last > failed


def test_a_crash_is_marked_and_its_record_names_the_ring(python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, f"import time; time.sleep(0.25)\n{CRASH}")
    assert done.status == -signal.SIGSEGV
    (path,) = ring_paths(done.folder)
    ring = read(path)
    assert ring.end.how == "crash" and ring.end.at is not None
    assert done.record["recorder"] == str(path)
    assert abs(ring.end.at - done.record["time"]["monotonic"]) < 1


def test_a_crash_that_was_survived_is_none(jobs: Jobs) -> None:
    code = """
        import ctypes, os, signal, time
        signal.signal(signal.SIGSEGV, lambda n, f: None)
        os.kill(os.getpid(), signal.SIGSEGV)
        tell()
        """
    job = start(jobs, PYTHONS[-1], code)
    job.line()
    ends = time.monotonic() + 20  # the watcher looks after three seconds
    while only_ring(job.folder).end.how is not None and time.monotonic() < ends:
        time.sleep(0.1)
    assert only_ring(job.folder).end.how is None
    kill(job)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1])
def test_a_signal_that_ends_it_is_told_with_its_sender(number: int, python: Interpreter, jobs: Jobs) -> None:
    job = start(jobs, python, "tell(); import time; time.sleep(60)")
    job.line()
    sent = kill(job, number)
    assert job.process.returncode == -number
    (seen,) = only_ring(job.folder).signals
    assert (seen.number, seen.name, seen.fatal) == (number, signal.Signals(number).name, True)
    assert seen.sender is not None and (seen.sender.pid, seen.sender.uid) == (os.getpid(), os.getuid())
    assert sent - 0.01 < seen.at < sent + 5


def test_a_signal_that_the_job_handles_is_told_too(python: Interpreter, jobs: Jobs) -> None:
    # A handler that is installed after ours replaces it, and only what stood there before is called by us.
    before = (
        "import signal\nsignal.signal(signal.SIGUSR1, lambda n, f: None)\nimport ftforensics\nftforensics.install()\n"
    )
    job = start(jobs, python, before + "tell()\ntell()\n", install=None)
    job.line()
    os.kill(job.process.pid, signal.SIGUSR1)
    job.go_on()
    job.line()
    (seen,) = eventually(job.folder, lambda ring: ring.signals).signals
    kill(job)
    assert (seen.name, seen.fatal) == ("SIGUSR1", False)


def test_a_forked_child_has_a_ring_of_its_own(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import os, time
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
        tell(pid)
        os.waitpid(pid, 0)
        """
    job = start(jobs, python, code)
    child = int(job.line())
    path = wait_for_ring(job.folder, child)
    os.kill(child, signal.SIGKILL)
    job.go_on()
    assert job.end() == (0, "")
    assert ring_paths(job.folder) == [path]  # the parent ended well
    ring = read(path)
    parent = job.process.pid
    assert (ring.process.pid, ring.process.ppid, ring.process.fork_of, ring.process.worker_of) == (
        child, parent, parent, parent,
    )  # fmt: skip
    assert ring.end.how is None


def test_children_that_only_run_to_their_exec_make_none(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import ctypes, os, subprocess, time
        libc = ctypes.CDLL(None)
        def exec_without_a_word():  # from C, past the hooks of os
            time.sleep(0.02)
            libc.execl(b"/bin/true", b"true", None)
        for _ in range(5):
            subprocess.run(["true"], preexec_fn=lambda: time.sleep(0.02), check=True)
            subprocess.run(["true"], check=True)
            pid = os.fork()
            if pid == 0:
                exec_without_a_word()
            assert os.waitpid(pid, 0)[1] == 0
        """
    done = jobs.run(python, code)
    assert done.status == 0, done.err
    assert [path.name for path in done.folder.iterdir()] == ["program.py"]


WORKERS = """
import multiprocessing as mp, os, sys, time
def work(ready):
    ready.put(os.getpid()); time.sleep(60)
if __name__ == "__main__":
    context = mp.get_context(sys.argv[1] if len(sys.argv) > 1 else METHOD)
    ready = context.SimpleQueue()
    child = context.Process(target=work, args=(ready,))
    child.start()
    pid = ready.get()
    def tell(word="ready"):
        os.write(1, f"{word}\\n".encode())
        os.read(0, 1)
    tell(pid)
    END
    child.join()
"""
IN_MAIN = 'if __name__ == "__main__": ftforensics.install(helper="none")'


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_a_worker_that_its_parent_ended_needs_no_ring(how: str, method: str, python: Interpreter, jobs: Jobs) -> None:
    code = WORKERS.replace("METHOD", repr(method)).replace("END", f"child.{how}()")
    job = start(jobs, python, code, install=IN_MAIN)
    pid = int(job.line())
    ring = read(wait_for_ring(job.folder, pid))
    assert ring.process.worker_of == job.process.pid
    job.go_on()
    assert job.end() == (0, "")
    assert sorted(path.name for path in job.folder.iterdir()) == ["program.py"]


def test_a_worker_that_somebody_else_killed_keeps_its_ring(python: Interpreter, jobs: Jobs) -> None:
    code = WORKERS.replace("METHOD", "'fork'").replace("END", "child.join(); child.terminate()")
    job = start(jobs, python, code, install=IN_MAIN)
    pid = int(job.line())
    path = wait_for_ring(job.folder, pid)
    os.kill(pid, signal.SIGKILL)
    job.go_on()
    assert job.end() == (0, "")
    assert ring_paths(job.folder) == [path]


def test_a_worker_ended_otherwise_than_its_parent_asked_keeps_its_ring(jobs: Jobs) -> None:
    """It ignores SIGTERM, and then somebody kills it."""
    code = (
        WORKERS.replace("METHOD", "'fork'")
        .replace("END", "child.terminate(); tell()")
        .replace("    ready.put", "    import signal; signal.signal(15, signal.SIG_IGN)\n    ready.put")
    )
    job = start(jobs, PYTHONS[0], code, install=IN_MAIN)
    pid = int(job.line())
    path = wait_for_ring(job.folder, pid)
    job.go_on()
    job.line()
    os.kill(pid, signal.SIGKILL)
    job.go_on()
    assert job.end() == (0, "")
    assert ring_paths(job.folder) == [path]


def test_children_are_weighed(jobs: Jobs) -> None:
    code = """
        import os, time
        pids = []
        for size in (1, 40, 80):
            pid = os.fork()
            if pid == 0:
                block = bytearray(size << 20)
                time.sleep(60)
            pids.append(pid)
        tell(" ".join(map(str, pids)))
        for pid in pids:
            os.kill(pid, 9); os.waitpid(pid, 0)
        """
    job = start(jobs, PYTHONS[0], code)
    small, middle, large = (int(word) for word in job.line().split())
    mine = [path for path in ring_paths(job.folder) if f"-{job.process.pid}-" in path.name]
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        slow = read(mine[0]).slow[-1]
        if slow.children_count == 3 and (slow.children[0].rss or 0) > 80 << 20:
            break
        time.sleep(0.1)
    assert [child.pid for child in slow.children] == [large, middle, small]
    assert slow.children[1].rss is not None and slow.children[1].rss > 40 << 20
    assert slow.children_rss == sum(child.rss or 0 for child in slow.children)
    assert all(child.comm for child in slow.children)
    job.go_on()
    job.end()


def test_installing_elsewhere_moves_it(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import os, time
        ftforensics.note("first")
        ftforensics.install(dir="elsewhere", helper="none")
        time.sleep(0.3)
        os.kill(os.getpid(), 9)
        """
    job = start(jobs, python, code)
    job.process.wait(60)
    (path,) = ring_paths(job.folder)
    assert path.parent.name == "elsewhere" and not (job.folder / "ftforensics").exists()
    ring = read(path)
    assert ring.note == "first" and ring.last is not None and ring.last > ring.marks[0].at + 0.1


def test_thread_names_are_told(jobs: Jobs) -> None:
    # Names are read with the first slow sample and every ten seconds: this thread is there before the recorder.
    code = """
        import ctypes, threading, time
        said = threading.Event()
        def run():
            ctypes.CDLL(None).prctl(15, b"pt_data_worker"); said.set(); time.sleep(60)
        threading.Thread(target=run, daemon=True).start(); said.wait(20)
        import ftforensics; ftforensics.install(helper="none")
        time.sleep(0.2)
        tell()
        """
    job = start(jobs, PYTHONS[0], code, install=None)
    job.line()
    kill(job)
    assert "pt_data_worker" in only_ring(job.folder).thread_names


NVML = """
static int initialised = @INIT@;
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (!initialised) return 1;
    *device = (void *)(unsigned long)(index + 1);
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    (void)uuid;
    *device = (void *)8ul;
    return initialised ? 0 : 1;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    memory[0] = 80ull << 30;
    memory[2] = (unsigned long)device << 30;
    memory[1] = memory[0] - memory[2];
    return 0;
}
"""


@needs_cc
@pytest.mark.parametrize(
    ("initialised", "visible", "used"),
    [
        (True, "4,5", 6 << 30),
        (True, None, 2 << 30),
        (True, "7", 8 << 30),
        (True, "GPU-abc", 8 << 30),
        (False, None, None),
    ],
)
def test_gpu_memory_comes_from_a_driver_library_that_the_job_uses(
    initialised: bool, visible: str | None, used: int | None, jobs: Jobs, tmp_path: Path
) -> None:
    """A real shared object in place of the driver's: no GPU here."""
    source = tmp_path / "nvml.c"
    source.write_text(NVML.replace("@INIT@", str(int(initialised))))
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", tmp_path / "libnvidia-ml.so.1", source],
        check=True,
    )
    code = f"""
        import ctypes, time
        ctypes.CDLL({str(tmp_path / "libnvidia-ml.so.1")!r})
        import ftforensics; ftforensics.install(helper="none")
        time.sleep(0.3)
        tell()
        """
    environ = {"LOCAL_RANK": "1"} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    job = start(jobs, PYTHONS[0], code, install=None, **environ)
    job.line()
    kill(job)
    slow = only_ring(job.folder).slow[-1]
    assert (slow.gpu_used, slow.gpu_total) == (used, None if used is None else 80 << 30)


def test_without_such_a_library_none_is_loaded(jobs: Jobs) -> None:
    job = start(jobs, PYTHONS[0], "import time; time.sleep(0.2); tell()")
    job.line()
    assert "nvidia" not in Path(f"/proc/{job.process.pid}/maps").read_text()
    kill(job)
    assert only_ring(job.folder).slow[-1].gpu_used is None

"""Trouble with the ring's file ends the recorder at worst, never the job."""

from __future__ import annotations

import errno
import mmap
import os
import select
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions import PYTHONS, Interpreter, needs_disk_of_its_own, needs_root
from jobs import CRASH, Jobs
from rings import eventually, only_ring, read, ring_paths, start
from seccomp import CLONE, FILTER
from synth.ring import SLOT, TABLE_AT

# The job goes on with everything that touches the ring, then crashes, and the crash is recorded as always.
GO_ON = f"""
import signal, time
tell()
time.sleep(0.35)
with ftforensics.phase("after"):
    ftforensics.step(7)
    ftforensics.note("alive")
    time.sleep(0.1)
def here():
    {CRASH}
tell("alive")
here()
"""


def damage_and_crash(jobs: Jobs, python: Interpreter, damage: object, **environ: str) -> Path:
    """The record of a job whose ring was damaged while it ran."""
    assert callable(damage)
    job = start(jobs, python, GO_ON, **environ)
    job.line()
    (path,) = ring_paths(job.folder)
    damage(path)
    job.go_on()
    assert job.line() == "alive"
    job.go_on()
    status, err = job.end()
    assert (status, err) == (-signal.SIGSEGV, "")
    (record,) = job.folder.rglob("*.crash.json")
    assert '"end"' in record.read_text() and "in here" in record.read_text()
    return record


@pytest.mark.parametrize("size", [0, 300, 4096, 100_000])
def test_truncated_under_us(size: int, python: Interpreter, jobs: Jobs) -> None:
    """All of it is in memory, so the file is made whole again."""
    record = damage_and_crash(jobs, python, lambda path: os.truncate(path, size))
    (path,) = ring_paths(record.parent)
    assert f'"recorder": "{path}"' in record.read_text()
    ring = read(path)
    assert (ring.gaps, ring.end.how, ring.step, ring.note) == ([], "crash", 7, "alive")
    assert [mark.text for mark in ring.marks] == ["after", "7", "alive", ""]
    assert len(ring.fast) >= 4 and ring.slow and ring.process.argv


def test_deleted_under_us(python: Interpreter, jobs: Jobs) -> None:
    record = damage_and_crash(jobs, python, os.unlink)
    assert ring_paths(record.parent) == []


def test_replaced_by_a_file_of_the_jobs(jobs: Jobs) -> None:
    """What stands under the name now is not ours to write to, nor to remove."""
    code = """
        tell()
        import time; time.sleep(0.3)
        """
    job = start(jobs, PYTHONS[0], code)
    job.line()
    (path,) = ring_paths(job.folder)
    kept = path.with_suffix(".kept")
    path.rename(kept)
    path.write_bytes(b"x" * 1000)
    os.truncate(kept, 0)
    job.go_on()
    assert job.end() == (0, "")
    assert path.read_bytes() == b"x" * 1000


@pytest.mark.parametrize(
    "job_does", ["signal(SIGBUS, SIG_DFL)", "signal(SIGBUS, SIG_IGN)", "pthread_sigmask(SIG_BLOCK, [SIGBUS])"]
)
def test_whatever_the_job_does_with_bus_errors(job_does: str, jobs: Jobs) -> None:
    code = f"""
        from signal import *
        {job_does}
        tell()
        ftforensics.step(3)
        import time; time.sleep(0.3)
        """
    job = start(jobs, PYTHONS[0], code)
    job.line()
    (path,) = ring_paths(job.folder)
    os.truncate(path, 0)
    job.go_on()
    assert job.end() == (0, "")


@pytest.fixture
def disk_of_its_own(tmp_path: Path) -> Iterator[Path]:
    """A real file system that can be frozen, as a snapshot does and as a dead disk looks."""
    image, mount = tmp_path / "disk", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


@needs_disk_of_its_own
def test_a_frozen_disk_holds_none_of_the_jobs_threads(disk_of_its_own: Path, python: Interpreter, jobs: Jobs) -> None:
    code = """
        import mmap, signal, time
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        tell()
        until = time.monotonic() + 0.5
        step = 0
        while time.monotonic() < until:
            step += 1
            with ftforensics.phase("frozen"):
                ftforensics.step(step)
                ftforensics.note("here")
            mmap.mmap(-1, 1 << 20).close()
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.001)
        os.write(1, b"alive\\n")
        time.sleep(60)
        """
    install = f'ftforensics.install(dir={str(disk_of_its_own / "run")!r}, helper="none")'
    job = start(jobs, python, code, install=install)
    job.line()
    (path,) = ring_paths(disk_of_its_own)
    subprocess.run(["fsfreeze", "--freeze", disk_of_its_own], check=True)
    try:
        job.go_on()
        assert job.process.stdout is not None
        answered, _, _ = select.select([job.process.stdout], [], [], 20)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", disk_of_its_own], check=True)
    assert answered and job.line() == "alive"
    # thawed, the file gets what it missed
    ring = eventually(path.parent, lambda ring: ring.note == "here" and ring.phase is None)
    assert ring.step is not None and ring.step > 10
    job.process.kill()
    job.process.wait(20)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory with room for two rings and a half."""
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1800k", "tmpfs", mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def fill(disk: Path) -> None:
    fd = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        while True:
            os.write(fd, b"x" * 4096)
    except OSError as error:
        assert error.errno == errno.ENOSPC
    finally:
        os.close(fd)


@needs_root
def test_a_full_disk_at_the_start(small_disk: Path, python: Interpreter, jobs: Jobs) -> None:
    fill(small_disk)
    os.truncate(small_disk / "filler", (small_disk / "filler").stat().st_size - 300_000)
    install = f'ftforensics.install(dir={str(small_disk)!r}, helper="none")'
    done = jobs.run(python, f"import time; time.sleep(0.2)\ndef here():\n    {CRASH}\nhere()", install=install)
    assert done.status == -signal.SIGSEGV
    assert done.err == (
        "ftforensics: the flight recorder is off, a kill will leave no trace: fallocate: No space left on device\n"
    )
    (record,) = small_disk.glob("*.crash.json")
    assert '"recorder": null' in record.read_text()
    assert [path.name for path in small_disk.iterdir() if path.suffix == ".ring"] == []


@needs_root
def test_moving_to_a_full_disk_keeps_what_there_is(small_disk: Path, jobs: Jobs) -> None:
    fill(small_disk)
    code = f"""
        ftforensics.note("before")
        ftforensics.install(dir={str(small_disk)!r}, helper="none")
        tell()
        """
    job = start(jobs, PYTHONS[0], code)
    job.line()
    ring = eventually(job.folder, lambda ring: ring.note == "before" and ring.fast)
    assert ring.process.pid == job.process.pid and ring_paths(small_disk) == []
    job.go_on()
    status, err = job.end()
    assert status == 0 and err.count("\n") == 1 and "No space left on device" in err
    assert ring_paths(job.folder) == []


@needs_root
def test_a_page_taken_away_on_a_full_disk(small_disk: Path, python: Interpreter, jobs: Jobs) -> None:
    """fallocate(2) makes room, but somebody may punch it out again: then a write meets a full file system."""

    def punch(path: Path) -> None:
        size = path.stat().st_size
        subprocess.run(["fallocate", "-p", "-o", "0", "-l", str(size), path], check=True)
        fill(small_disk)

    install = f'ftforensics.install(dir={str(small_disk)!r}, helper="none")'
    job = start(jobs, python, GO_ON, install=install)
    job.line()
    (path,) = ring_paths(small_disk)
    punch(path)
    job.go_on()
    assert job.line() == "alive"
    os.unlink(small_disk / "filler")
    job.go_on()
    assert job.end() == (-signal.SIGSEGV, "")
    (record,) = small_disk.glob("*.crash.json")
    assert '"end"' in record.read_text()


def test_a_limit_on_file_size(python: Interpreter, jobs: Jobs) -> None:
    """Exceeding it would be SIGXFSZ, which ends a process."""
    code = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, a launcher in C does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        import ftforensics
        ftforensics.install(helper="none")
        import time; time.sleep(0.2)
        print("alive")
        """
    done = jobs.run(python, code, install=None)
    assert (done.status, done.out) == (0, "alive\n")
    assert "the flight recorder is off" in done.err and "File too large" in done.err


@needs_root
def test_a_folder_that_became_read_only_before_the_fork(jobs: Jobs) -> None:
    """A child cannot make its ring; it works all the same, and nothing is said a second time."""
    code = """
        import ctypes, os, time
        libc = ctypes.CDLL(None)
        here = os.getcwd().encode()
        assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None) == 0
        assert libc.mount(here, here, None, 4096, None) == 0
        assert libc.mount(b"none", here, None, 4096 | 32 | 1, None) == 0
        pid = os.fork()
        if pid == 0:
            time.sleep(0.4)
            os._exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    done = jobs.run(PYTHONS[0], code)
    assert (done.status, done.out, done.err) == (0, "5\n", "")


def test_a_copy_of_a_ring_that_is_written_reads_well(jobs: Jobs, tmp_path: Path) -> None:
    code = """
        import threading, time
        stop = False
        def mark():
            letter = 0
            while not stop:
                letter = (letter + 1) % 26
                with ftforensics.phase(chr(97 + letter) * 200):
                    ftforensics.note(chr(65 + letter) * 990)
        thread = threading.Thread(target=mark)
        thread.start()
        tell()
        stop = True
        """
    job = start(jobs, PYTHONS[0], code)
    job.line()
    (path,) = ring_paths(job.folder)
    for turn in range(200):
        copy = tmp_path / f"copy{turn}.ring"
        shutil.copy(path, copy)
        ring = read(copy)
        for text in (ring.note or "", ring.phase or "", *(mark.text for mark in ring.marks)):
            assert len(set(text)) <= 1 and len(text) in (0, 200, 208, 990)
        copy.unlink()
    # The same for the two slots of the note alone, copied so often that many copies meet a store.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        offset, slot, count = struct.unpack_from("<QII", pages, TABLE_AT + 16 * list(SLOT).index("note"))
        for turn in range(60_000):
            at = offset + turn % count * slot
            copied = pages[at : at + slot]
            if copied[:8] == copied[-8:] != bytes(8):
                assert len(set(copied[24 : 24 + 990])) == 1
    job.go_on()
    assert job.end() == (0, "")


def test_on_a_network_file_system_it_lies_on_this_machine(python: Interpreter, jobs: Jobs, tmp_path: Path) -> None:
    """Told by a test's hook: there is no NFS here. The run folder holds a link."""
    code = """
        from ftforensics import _native
        _native.test_hook("network", "hang")
        import ftforensics
        ftforensics.install(helper="none")
        import time; time.sleep(0.15)
        tell()
        """
    job = start(jobs, python, code, install=None, TMPDIR=str(tmp_path))
    job.line()
    (link,) = ring_paths(job.folder)
    private = tmp_path / f"ftforensics-{os.getuid()}"
    assert link.is_symlink() and link.resolve() == private / link.name
    assert private.stat().st_mode & 0o777 == 0o700
    assert read(link).fast
    job.go_on()
    assert job.end() == (0, "")
    assert sorted(path.name for path in job.folder.iterdir()) == ["program.py"] and not private.exists()


def test_a_local_place_that_belongs_to_somebody_else_is_not_used(jobs: Jobs, tmp_path: Path) -> None:
    private = tmp_path / f"ftforensics-{os.getuid()}"
    private.mkdir(mode=0o777)
    private.chmod(0o777)
    code = """
        from ftforensics import _native
        _native.test_hook("network", "hang")
        import ftforensics
        ftforensics.install(helper="none")
        """
    done = jobs.run(PYTHONS[0], code, install=None, TMPDIR=str(tmp_path))
    assert done.status == 0 and "Operation not permitted" in done.err
    assert [*private.iterdir()] == []


def test_the_folder_taken_away_by_another_rank(python: Interpreter, jobs: Jobs) -> None:
    """Ranks that end take the empty folder down between our making it and our first file in it: it is made again."""
    code = """
        import os
        from ftforensics import _native
        import ftforensics
        from ftforensics.capture import session
        start = session._start_recorder
        def late(native):
            os.rmdir(os.path.dirname(os.fsdecode(native.record_path())))
            start(native)
        session._start_recorder = late
        ftforensics.install(helper="none")
        tell()
        """
    job = start(jobs, python, code, install=None)
    job.line()
    assert only_ring(job.folder).process.pid == job.process.pid
    job.process.kill()
    job.process.wait(20)


def test_a_thread_stuck_in_a_dead_driver_does_not_stop_a_fork(jobs: Jobs, tmp_path: Path) -> None:
    """The driver's library answers never; fork waits for the watcher two seconds and then goes on."""
    source = tmp_path / "nvml.c"
    source.write_text(
        "#include <unistd.h>\n"
        "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { (void)i; *d = 0; return 0; }\n"
        "int nvmlDeviceGetMemoryInfo(void *d, void *m) { (void)d; (void)m; for (;;) sleep(1000); }\n"
    )
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, source], check=True)
    code = f"""
        import ctypes, os, time
        ctypes.CDLL({str(library)!r})
        import ftforensics; ftforensics.install(helper="none")
        time.sleep(0.3)
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        print("alive")
        """
    started = time.monotonic()
    done = jobs.run(PYTHONS[0], code, install=None)
    assert (done.status, done.out) == (0, "alive\n"), done.err
    assert time.monotonic() - started < 20


def test_a_thread_that_cannot_be_started_is_told(jobs: Jobs) -> None:
    """What the job says itself is recorded all the same, by its own threads."""
    install = f"""{FILTER}
refuse([{CLONE}, 435], 11)  # 435: clone3
ftforensics.install(helper="none")
"""
    job = start(jobs, PYTHONS[0], 'ftforensics.note("alone")\ntell()\n', install=install)
    job.line()
    ring = only_ring(job.folder)
    assert (ring.note, ring.fast) == ("alone", [])
    job.go_on()
    status, err = job.end()
    assert status == 0 and "takes no samples: its thread cannot be started: Resource temporarily unavailable" in err
    assert ring_paths(job.folder) == []

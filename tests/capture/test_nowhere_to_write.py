"""No room, no end of the pipe, a file system that does not answer: the status stays, nothing hangs, JSON stays JSON."""

from __future__ import annotations

import marshal
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions import PYTHONS, ROOT, Interpreter, needs_frozen_disk, needs_root
from jobs import CRASH, Jobs

# Python ignores both signals; many jobs do not.
DEFAULTS = """
        import ctypes, os, resource, signal  # now: byte code cannot be written under a limit
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        """


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ftforensics-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("limit", [600, 5000, 20000])
@pytest.mark.parametrize("death", [CRASH, "os.abort()"])
def test_a_limit_on_file_size(limit: int, death: str, python: Interpreter, jobs: Jobs) -> None:
    code = f"""{DEFAULTS}
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        {death}
        """
    with_us = jobs.run(python, code)
    assert with_us.status == jobs.run(python, code, install=None).status
    assert "end" in with_us.record and with_us.record["signal" if limit > 600 else "schema"]
    if limit >= 5000:
        assert with_us.record["native"] and with_us.record["python"]
    if limit >= 20000:
        assert any(stage["error"] == "EFBIG" for stage in with_us.record["stages"])


def test_a_limit_on_file_size_cuts_no_compiled_module_of_ours(tmp_path: Path) -> None:
    """The crash reporter meets the job's limit. CPython would rename a .pyc that is cut short into place."""
    package = tmp_path / "package/ftforensics"
    shutil.copytree(ROOT / "src/ftforensics", package, ignore=shutil.ignore_patterns("__pycache__"))
    job = """
import ctypes, resource, sys, ftforensics
ftforensics.install(dir=sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
ctypes.string_at(0)
"""
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # Ends when the reporter has let go of standard error.
    done = subprocess.run([sys.executable, "-c", job, str(tmp_path)], env=environment, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert b"ftforensics:" in done.stderr
    compiled = list(package.rglob("*.pyc"))
    assert compiled  # the job's own imports, before the limit
    for path in compiled:
        marshal.loads(path.read_bytes()[16:])  # past the header, PEP 552


@pytest.mark.parametrize("death", [CRASH, "os.abort()"])
def test_no_byte_may_be_written(death: str, python: Interpreter, jobs: Jobs) -> None:
    code = f"""{DEFAULTS}
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        r, w = os.pipe(); os.dup2(w, 2); os.close(r); os.close(w)  # and nobody listens
        os.write(1, str(os.getpid()).encode())
        {death}
        """
    with_us = jobs.run(python, code)
    assert with_us.status == jobs.run(python, code, install=None).status
    assert with_us.paths == [] and not list(Path("/tmp").glob(f"*-{with_us.out}-*.crash.json"))


def test_the_reservation_breaks_no_limit(memory_folder: Path, python: Interpreter, jobs: Jobs) -> None:
    """tmpfs applies the limit to fallocate(2) too, by a signal: at install, and again in each forked child."""
    code = f"""{DEFAULTS}
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        import ftforensics
        ftforensics.install(dir={str(memory_folder / "records")!r}, helper="none")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        print(os.waitpid(pid, 0)[1])
        """
    done = jobs.run(python, code, install=None)
    assert (done.status, done.out) == (0, "0\n")
    assert done.err.count("\n") == 1 and "the flight recorder is off" in done.err


def test_stderr_that_nobody_empties(python: Interpreter, jobs: Jobs) -> None:
    code = f"""{DEFAULTS}
        r, w = os.pipe()
        os.set_blocking(w, False)
        for size in (65536, 1):
            try:
                while True:
                    os.write(w, b"x" * size)
            except BlockingIOError:
                pass
        os.set_blocking(w, True); os.dup2(w, 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        {CRASH}
        """
    started = time.monotonic()
    assert jobs.run(python, code).status == -signal.SIGSEGV
    assert time.monotonic() - started < 20


@needs_root
def test_a_folder_that_became_read_only(python: Interpreter, jobs: Jobs) -> None:
    """The unnamed file cannot be given a name there: the record goes to /tmp."""
    code = f"""
        import ctypes, os
        libc = ctypes.CDLL(None)
        here = os.getcwd().encode()
        assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None) == 0
        assert libc.mount(here, here, None, 4096, None) == 0
        assert libc.mount(b"none", here, None, 4096 | 32 | 1, None) == 0
        os.write(1, str(os.getpid()).encode())
        {CRASH}
        """
    done = jobs.run(python, code)
    assert done.status == -signal.SIGSEGV
    found = [*Path("/tmp").glob(f"*-{done.out}-*.crash.json"), *done.paths]
    assert len(found) == 1
    assert '"end"' in found[0].read_text()
    found[0].unlink()


@needs_frozen_disk
def test_a_file_system_that_answers_nobody(tmp_path: Path, jobs: Jobs) -> None:
    """Frozen, it blocks whoever wants to make a name in it, beyond any signal: as a dead NFS or Lustre server does. The
    recorder is told that it is one of those, so its ring lies elsewhere: a store into a page of a frozen file system
    would keep the watcher's thread, and with it the process, from ending."""
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    image.write_bytes(b"")
    with image.open("r+b") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        code = f"""
            import ctypes, ftforensics, os, subprocess
            from ftforensics import _native
            _native.test_hook("network", "hang")
            ftforensics.install(dir={str(mount / "records")!r}, helper="none")
            subprocess.run(["fsfreeze", "-f", {str(mount)!r}], check=True)
            os.write(1, str(os.getpid()).encode())
            for fd in (0, 1, 2):
                os.close(fd)  # what is stuck in the kernel keeps its descriptors, and our reader would wait for it
            {CRASH}
            """
        started = time.monotonic()
        try:
            done = jobs.run(PYTHONS[0], code, install=None, TMPDIR=str(tmp_path))
        finally:
            subprocess.run(["fsfreeze", "-u", mount], check=True)
        assert done.status == -signal.SIGSEGV
        assert time.monotonic() - started < 20
        (path,) = Path("/tmp").glob(f"*-{done.out}-*.crash.json")
        assert '"end"' in path.read_text()
        path.unlink()
        assert len([*tmp_path.glob("ftforensics-*/*.ring")]) == 1
    finally:
        # Lazily: what was stuck in the kernel is on its way out, and holds the file system until it has gone.
        subprocess.run(["umount", "--lazy", mount], check=True)


@needs_root
def test_another_root_directory(python: Interpreter, jobs: Jobs) -> None:
    """Neither the folder's path nor /proc, through which the unnamed file gets its name, exists there."""
    done = jobs.run(python, f"import ctypes, os; os.mkdir('jail'); os.chroot('jail'); os.chdir('/')\n{CRASH}")
    assert done.status == -signal.SIGSEGV
    assert done.record["signal"]["code_name"] == "SEGV_MAPERR" and "end" in done.record

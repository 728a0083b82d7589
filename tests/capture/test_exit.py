"""What the record says about a process that dies while the interpreter goes down."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from conditions import Interpreter, needs_cc
from jobs import CRASH, Jobs


def test_a_crash_in_an_exit_handler_registered_after_us(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import atexit, threading
        def cleanup():
            {CRASH}
        atexit.register(cleanup)
        """
    done = jobs.run(python, code)
    assert done.status == -signal.SIGSEGV
    assert done.record["process"]["python"] == "exiting"
    assert "in cleanup" in done.record["python"]["text"]


def test_a_thread_that_outlives_the_main_program_is_not_exiting(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import threading
        def serve():
            threading.main_thread().join()  # the main program is over
            {CRASH}
        threading.Thread(target=serve).start()
        """
    done = jobs.run(python, code)
    assert done.status == -signal.SIGSEGV
    assert done.record["process"]["python"] == "running"
    assert done.record["process"]["main_thread"] is False


def test_a_crash_after_the_interpreter_is_gone(python: Interpreter, jobs: Jobs) -> None:
    # libc's own exit handler runs after Py_FinalizeEx; strlen(0) needs no Python
    code = """
        import ctypes
        libc = ctypes.CDLL(None)
        strlen = ctypes.cast(libc.strlen, ctypes.c_void_p)
        libc.__cxa_atexit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        assert libc.__cxa_atexit(strlen, None, None) == 0
        """
    done = jobs.run(python, code)
    assert done.status == -signal.SIGSEGV
    assert done.record["process"]["python"] == "finalized"
    assert done.paths[0].parent.parent.name == "ftforensics"  # the folder was removed at exit and is there again


def build_overflow(folder: Path) -> None:
    """deep.so: overflows its stack when `deep` is called, and again in its destructor."""
    (folder / "deep.c").write_text(
        "static volatile int sink;\n"
        "__attribute__((noinline)) int deep(int n)\n"
        "{ volatile char room[4096]; room[0] = n; return deep(n + 1) + room[0]; }\n"
        "__attribute__((destructor)) static void at_exit(void) { sink = deep(0); }\n"
    )
    subprocess.run(["gcc", "-O0", "-shared", "-fPIC", "-o", folder / "deep.so", folder / "deep.c"], check=True)


@needs_cc
def test_an_overflow_after_the_interpreter_is_gone(python: Interpreter, jobs: Jobs) -> None:
    """faulthandler has taken its alternate stack along."""
    cwd = jobs.fresh()
    build_overflow(cwd)
    done = jobs.run(python, "import ctypes; ctypes.CDLL('./deep.so')", cwd=cwd)
    assert done.status == -signal.SIGSEGV
    assert done.record["process"]["python"] == "finalized"


@needs_cc
def test_the_main_thread_may_overflow_when_another_one_installed(python: Interpreter, jobs: Jobs) -> None:
    cwd = jobs.fresh()
    build_overflow(cwd)
    code = """
        import ctypes, threading
        import ftforensics
        thread = threading.Thread(target=lambda: ftforensics.install(helper="none"))
        thread.start(); thread.join()
        ctypes.CDLL("./deep.so").deep(0)
        """
    done = jobs.run(python, code, cwd=cwd, install=None)
    assert done.status == -signal.SIGSEGV
    assert done.record["process"]["main_thread"] is True


BROKEN = "import builtins, os\ndef broken(*_): raise RuntimeError('not for you')\n" + "".join(
    f"os.{name} = broken\n" for name in ("getpid", "unlink", "rmdir", "listdir", "stat")
)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os._exit(3)", 3),
        ("os.execv('/bin/sh', ['sh', '-c', 'exit 4'])", 4),
        ("del builtins.getattr; raise KeyError", 1),
        ("", 0),
    ],
)
def test_a_job_that_broke_what_we_call_ends_as_without_us(
    end: str, status: int, python: Interpreter, jobs: Jobs
) -> None:
    done = jobs.run(python, BROKEN + end)
    assert done.status == status, done.err
    assert "not for you" not in done.err and "capture" not in done.err

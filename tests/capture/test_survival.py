"""Signals that the job survives cost neither the job nor the record of the crash after them."""

from __future__ import annotations

import signal

from conditions import Interpreter, needs_x86_64
from jobs import CRASH, Jobs


def names(records: list[dict[str, object]]) -> list[str]:
    return sorted(record["signal"]["name"] for record in records)  # type: ignore[index]


def test_a_crash_soon_after_a_survived_signal(python: Interpreter, jobs: Jobs) -> None:
    """Sooner than the watcher can know that the process lives on."""
    code = f"""
        import os, signal, time
        signal.signal(signal.SIGABRT, lambda *a: print("handled"))
        time.sleep(0.3)  # taken back by now
        os.kill(os.getpid(), signal.SIGABRT)
        print("alive", flush=True)
        time.sleep(0.2)
        {CRASH}
        """
    done = jobs.run(python, code)
    assert (done.status, done.out) == (-signal.SIGSEGV, "handled\nalive\n")
    assert names(done.records) == ["SIGABRT", "SIGSEGV"]


@needs_x86_64
def test_the_thread_that_survived_may_end(python: Interpreter, jobs: Jobs) -> None:
    """Its stack held the siginfo. Nor do the others wait for it."""
    code = """
        import ctypes, os, signal, threading, time
        signal.signal(signal.SIGABRT, lambda *a: print("handled"))
        time.sleep(0.3)
        def hit():
            me, process = threading.get_native_id(), os.getpid()
            if os.fork() == 0:
                ctypes.CDLL(None).syscall(234, process, me, 6)
                os._exit(0)
            os.wait()
        started = time.monotonic()
        thread = threading.Thread(target=hit); thread.start(); thread.join()
        print(time.monotonic() - started < 2)
        time.sleep(4)
        print("alive")
        """
    done = jobs.run(python, code)
    assert (done.status, done.out) == (0, "handled\nTrue\nalive\n"), done.err
    assert names(done.records) == ["SIGABRT"]


def test_a_thread_that_blocked_signals_meanwhile(python: Interpreter, jobs: Jobs) -> None:
    """The hold signal is still pending for it when the watcher gives that signal back."""
    code = """
        import os, signal, threading, time
        signal.signal(signal.SIGABRT, lambda *a: None)
        time.sleep(0.3)
        def deaf():
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            time.sleep(5)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            print("hears again")
        thread = threading.Thread(target=deaf); thread.start(); time.sleep(0.2)
        if os.fork() == 0:
            os.kill(os.getppid(), signal.SIGABRT)
            os._exit(0)
        os.wait(); thread.join()
        print("alive")
        """
    done = jobs.run(python, code)
    assert (done.status, done.out) == (0, "hears again\nalive\n"), done.err

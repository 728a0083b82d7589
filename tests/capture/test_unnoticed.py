"""The job does not notice: everything here is compared with the same program without us."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from conditions import Interpreter
from jobs import Jobs, Run

# Each program prints what it sees; the print must be the same with and without capture.
PROGRAMS = {
    "signal table": """
        import signal
        for number in sorted(signal.valid_signals()):
            print(int(number), signal.getsignal(number))
        """,
    "asyncio signal handlers": """
        import asyncio, os, signal
        async def main():
            got, seen = asyncio.Event(), []
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
                loop.add_signal_handler(number, lambda n=number: (seen.append(n), got.set()))
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
                got.clear(); os.kill(os.getpid(), number); await asyncio.wait_for(got.wait(), 20)
            print(seen)
        asyncio.run(main())
        """,
    "a handler of the job's own, and its return value": """
        import os, signal
        seen = []
        print(signal.signal(signal.SIGTERM, lambda n, f: seen.append(n)))
        os.kill(os.getpid(), signal.SIGTERM)
        print(seen, signal.signal(signal.SIGTERM, signal.SIG_DFL) is not None)
        """,
    "keyboard interrupt": """
        import os, signal, time
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(20)
        except KeyboardInterrupt:
            print("interrupted")
        """,
    "fatal signals of the job's own": """
        import os, signal
        for number in (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT):
            print(signal.signal(number, signal.SIG_IGN))
            print(signal.getsignal(number))
        """,
    "exec'd children start with clean dispositions": """
        import subprocess
        status = subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True).stdout
        print([line for line in status.splitlines() if line.startswith("Sig") and not line.startswith("SigQ")])
        """,
    "sigwait, sigmask and real-time signals": """
        import os, signal, threading
        print(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, 64]))
        os.kill(os.getpid(), 64)
        print(signal.sigwait([64]))
        print(signal.sigpending())
        print(signal.pthread_sigmask(signal.SIG_SETMASK, []))
        """,
    "real-time signals still kill": """
        import os
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), 64)
        print(os.waitpid(pid, 0)[1])
        """,
    "system calls are interrupted and restarted as before": """
        import os, select, signal, time
        signal.signal(signal.SIGUSR1, lambda n, f: None)
        # PEP 475 restarts; siginterrupt decides for the C library
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        signal.signal(signal.SIGALRM, lambda n, f: print("alarm"))
        started = time.monotonic(); select.select([], [], [], 0.2); print(time.monotonic() - started >= 0.2)
        class Stop(Exception): pass
        def stop(n, f): raise Stop
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        r, w = os.pipe()
        try:
            os.read(r, 1)
        except Stop:
            print("stopped")
        """,
    "terminal": """
        import os, sys
        print([os.isatty(fd) for fd in (0, 1, 2)], sys.stdout.isatty())
        """,
    "descriptors 3 to 19 stay free": """
        # The recorder has small files open for microseconds (docs/recorder.md): what counts is what stays.
        import os
        looks = [{n for n in range(3, 20) if os.path.exists(f"/proc/self/fd/{n}")} for _ in range(50)]
        print(set.intersection(*looks))
        pairs = []
        for _ in range(50):
            pairs.append(os.pipe())
            for end in pairs[-1]: os.close(end)
        print(min(pairs))
        """,
    "children": """
        import os, signal
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("no children")
        print(signal.getsignal(signal.SIGCHLD))
        """,
    "traceback of an import error": """
        import sys, traceback
        sys.path.insert(0, "")
        open("broken.py", "w").write("import json\\nraise KeyError('x')\\n")
        try:
            import broken
        except KeyError:
            print(traceback.format_exc())
        open("broken.so", "w").write("no library")
        import importlib, os; os.remove("broken.py"); importlib.invalidate_caches()
        try:
            import broken
        except ImportError:
            print([frame.name for frame in traceback.extract_tb(sys.exc_info()[2])])
        """,
    "traceback in a thread": """
        import threading, traceback
        def hook(args):
            print([frame.name for frame in traceback.extract_tb(args.exc_traceback)])
        threading.excepthook = hook
        t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()
        t = threading.Thread(target=lambda: print([frame.name for frame in traceback.extract_stack()]))
        t.start(); t.join()
        """,
    "environment": "import os; print(sorted(os.environ))",
    "warnings": """
        import sys, warnings
        warnings.simplefilter("error")
        import json, threading, multiprocessing, asyncio, ctypes
        print("quiet")
        """,
    "faulthandler": """
        import faulthandler, sys
        print(faulthandler.is_enabled())
        faulthandler.enable(); print(faulthandler.is_enabled()); print(faulthandler.disable(), faulthandler.disable())
        faulthandler.dump_traceback(file=sys.stdout)
        faulthandler.register(34 + 3, file=sys.stdout); import os; os.kill(os.getpid(), 37)
        """,
}


def comparable(run: Run) -> str:
    """Output without what differs between any two runs: the folder and thread ids."""
    return re.sub("0x[0-9a-f]{16}", "ID", run.out.replace(str(run.folder), "."))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_the_same(name: str, python: Interpreter, jobs: Jobs) -> None:
    code = PROGRAMS[name]
    without = jobs.run(python, "\n\n" + code, install=None)  # two lines in place of ours keep line numbers equal
    with_us = jobs.run(python, code, install='ftforensics.install(helper="none")')
    assert without.out and not without.err, without.err
    assert (with_us.status, with_us.err) == (without.status, without.err)
    assert comparable(with_us) == comparable(without)


def test_nohup_stays(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import os, signal
        os.kill(os.getpid(), signal.SIGHUP)
        print("alive", signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
        """
    done = jobs.run(python, code, prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None)
    assert (done.status, done.out, done.err) == (0, "alive True\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1])
def test_a_sent_signal_kills_with_the_same_status(number: int, python: Interpreter, jobs: Jobs) -> None:
    code = f"import os, time; os.kill(os.getpid(), {int(number)}); time.sleep(20)"
    assert jobs.run(python, code, install=None).status == jobs.run(python, code).status == -number


def test_fork_warns_nobody(python: Interpreter, jobs: Jobs) -> None:
    # Python 3.12 counts threads before the after_in_parent hooks, 3.13 after them; with "error" 3.13 drops the
    # exception, so warnings are counted too.
    code = """
        import os, logging, warnings
        os.register_at_fork(after_in_parent=lambda: [str(n) for n in range(100)])
        warned, watched = 0, 0
        def count(*arguments, **named):
            global warned
            warned += 1
        warnings.showwarning = count
        for _ in range(200):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            watched += len(os.listdir("/proc/self/task")) == 2
            assert os.waitpid(pid, 0)[1] == 0
        print(warned, watched)
        """
    always = jobs.run(python, code, flags=("-W", "always"))
    assert (always.status, always.out, always.err) == (0, "0 200\n", "")
    error = jobs.run(python, code, flags=("-W", "error::DeprecationWarning"))
    assert (error.status, error.out, error.err) == (0, "0 200\n", "")


def test_a_terminal_stays_one(python: Interpreter, jobs: Jobs) -> None:
    leader, follower = os.openpty()
    try:
        code = "import os; print([os.isatty(fd) for fd in (0, 1, 2)], os.ttyname(0) != '')"
        done = jobs.run(python, code, prepare=lambda: os.dup2(follower, 0) and None)
        assert done.out == "[True, False, False] True\n"
    finally:
        os.close(leader)
        os.close(follower)


def test_the_extra_thread_takes_no_signal(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import os
        main = os.getpid()
        for tid in os.listdir("/proc/self/task"):
            if int(tid) != main:
                blocked = next(l for l in open(f"/proc/self/task/{tid}/status") if l.startswith("SigBlk"))
                # all but KILL, STOP and the two that glibc keeps for itself; and BUS for as long as it writes into the
                # ring's file, whose pages may be gone
                missing = ~int(blocked.split()[1], 16) & 0xffffffffffffffff
                print(missing & ~(1 << 6 | 1 << 8 | 1 << 18 | 1 << 31 | 1 << 32))
        """
    assert jobs.run(python, code).out == "0\n"


def test_clean_exits_leave_nothing(python: Interpreter, jobs: Jobs) -> None:
    ends = (
        *("pass", "import sys; sys.exit(0)", "raise SystemExit", "import os, sys; sys.stdout.close()"),
        *("import os; os._exit(0)", "import os; os.execlp('true', 'true')"),
    )
    for code in ends:
        done = jobs.run(python, code)
        assert [path.name for path in done.folder.iterdir()] == ["program.py"], done.err


def test_uninstall_leaves_the_dispositions_as_they_were(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import os
        def caught():
            # glibc takes 32 and 33 for itself with the first thread it makes
            masks = [l.split() for l in open("/proc/self/status") if l.startswith(("SigCgt", "SigIgn", "SigBlk"))]
            return [(name, int(mask, 16) & ~(3 << 31)) for name, mask in masks]
        before, opened = caught(), sorted(os.listdir("/proc/self/fd"))
        import ftforensics
        for _ in range(3):
            ftforensics.install(helper="none"); assert caught() != before; ftforensics.uninstall()
            assert caught() == before, (caught(), before)
            assert sorted(os.listdir("/proc/self/fd")) == opened
        print(os.listdir())
        """
    done = jobs.run(python, code, install=None)
    assert (done.out, done.err) == ("['program.py']\n", "")


CORE = """
import ctypes, os, signal, sys
kind = sys.argv[1]
if kind == "fault":
    ctypes.string_at(16)
elif kind == "sent":
    os.kill(os.getpid(), signal.SIGSEGV)
else:
    os.abort()
"""


def core_facts(path: Path) -> tuple[object, ...]:
    """(pr_cursig, si_signo, si_code, si_addr of a fault, type) from the notes of a core file: NT_PRSTATUS 1 and
    NT_SIGINFO 0x53494749 (linux/elf.h), read without a debugger."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        elf = ELFFile(file)
        found: dict[str, object] = {}
        for segment in elf.iter_segments("PT_NOTE"):
            for note in segment.iter_notes():
                data = note["n_descdata"] if "n_descdata" in note else note["n_desc"]
                raw = data if isinstance(data, bytes) else None
                if note["n_type"] in ("NT_SIGINFO", 0x53494749):
                    raw = raw or elf.stream.getvalue()
                    number, _, code = (int.from_bytes(raw[i : i + 4], "little", signed=True) for i in (0, 4, 8))
                    found["siginfo"] = (number, code, int.from_bytes(raw[16:24], "little") if code > 0 else None)
        return elf["e_type"], found.get("siginfo")


@pytest.mark.parametrize("kind", ["fault", "sent", "abort"])
def test_a_core_file_is_the_same_in_kind(kind: str, python: Interpreter, jobs: Jobs) -> None:
    if Path("/proc/sys/kernel/core_pattern").read_text().strip() != "core":
        pytest.skip("the kernel does not write `core` into the working directory here")
    unlimited = -1
    without = jobs.run(python, CORE, kind, install=None, core=unlimited)
    with_us = jobs.run(python, CORE, kind, core=unlimited)
    assert without.status == with_us.status
    cores = [next(run.folder.glob("core*")) for run in (without, with_us)]
    assert core_facts(cores[0]) == core_facts(cores[1])
    assert len(with_us.records) == 1


def test_the_inventory_is_no_child_of_the_job(python: Interpreter, jobs: Jobs) -> None:
    """From its exec on it would end with SIGCHLD and be found by wait(), whatever clone(2) was told."""
    code = """
        import os, signal, time
        signals = 0
        def count(*arguments):
            global signals
            signals += 1
        signal.signal(signal.SIGCHLD, count)
        found = set()
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            try:
                found.add(os.waitpid(-1, os.WNOHANG))
            except ChildProcessError:
                pass
            time.sleep(0.01)
        print(signals, found)
        """
    done = jobs.run(python, code, install="ftforensics.install()")
    assert (done.status, done.out) == (0, "0 set()\n"), done.err


def test_install_and_uninstall_keep_nothing(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import gc, os, threading
        import ftforensics
        def kilobytes():
            gc.collect()
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
        def cycle(times):
            for _ in range(times):
                ftforensics.install(helper="none"); ftforensics.uninstall()
            with open("/proc/self/maps") as maps:
                return kilobytes(), len(os.listdir("/proc/self/fd")), sum(1 for _ in maps)
        before = cycle(100); after = cycle(800)
        print(after[0] - before[0] < 1500, after[1] - before[1], after[2] - before[2] < 5)
        """
    done = jobs.run(python, code, install=None)
    assert (done.out, done.err) == ("True 0 True\n", "")


def test_another_interpreter_of_the_process_does_not_take_over(python: Interpreter, jobs: Jobs) -> None:
    code = """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        other = interpreters.create()
        try:
            interpreters.run_string(other, "import ftforensics; ftforensics.install(helper='none')")
        except Exception:
            pass  # 3.12 and later refuse extensions like ours in an isolated interpreter
        interpreters.destroy(other)
        def here():
            import ctypes
            ctypes.string_at(0)
        here()
        """
    done = jobs.run(python, code)
    assert done.status == -signal.SIGSEGV
    assert "in here" in done.record["python"]["text"]

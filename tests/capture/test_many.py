"""Many ranks, many threads."""

from __future__ import annotations

import subprocess

from conditions import ROOT, Interpreter
from jobs import CRASH, Jobs


def test_ranks_that_come_and_go_together_leave_nothing_and_miss_nothing(python: Interpreter, jobs: Jobs) -> None:
    # They share a run folder: each takes the empty folder away when it ends, while others are just about to use it.
    cwd = jobs.fresh()
    code = "import ftforensics; ftforensics.install(helper='none')"
    for turn in range(4):
        ranks = [
            subprocess.Popen(
                [python.path, "-S", "-c", code if rank < 7 or turn < 3 else f"{code}\n{CRASH}"],
                cwd=cwd,
                env=jobs.environment({"RANK": str(rank), "PYTHONPATH": str(ROOT / "src")}),
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(8)
        ]
        ends = [(rank.communicate(timeout=60)[1], rank.returncode) for rank in ranks]
        if turn < 3:
            assert ends == [("", 0)] * 8
            assert list(cwd.iterdir()) == []
    assert ends == [("", 0)] * 7 + [("", -11)]
    assert [path.name.partition("-")[2][:5] for path in cwd.rglob("*.json")] == ["rank7"]


def test_threads_come_and_go_without_growth(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import threading
        def mappings():
            return sum(1 for _ in open("/proc/self/maps"))
        def burst(count):
            threads = [threading.Thread(target=int) for _ in range(count)]
            for t in threads: t.start()
            for t in threads: t.join()
        for _ in range(5): burst(20)
        before = mappings()
        for _ in range(100): burst(20)
        print(mappings() - before <= 20)
        """
    done = jobs.run(python, code)
    assert (done.out, done.err) == ("True\n", "")


def test_every_python_thread_can_overflow_its_stack_and_be_recorded(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import ctypes, sys, threading
        # recursion through C: a callback that qsort calls, which sorts again; no Python limit stands in its way
        sys.setrecursionlimit(10**6)
        libc = ctypes.CDLL(None)
        Compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        array = (ctypes.c_int * 2)(2, 1)
        def compare(a, b):
            libc.qsort(array, 2, 4, callback)
            return 0
        callback = Compare(compare)
        def overflow():
            libc.qsort(array, 2, 4, callback)
        threading.stack_size(256 * 1024)
        thread = threading.Thread(target=overflow); thread.start(); thread.join()
        """
    done = jobs.run(python, code)
    assert done.status == -11, done.err[-500:]
    assert done.record["process"]["main_thread"] is False
    assert done.record["native"]["frames"]

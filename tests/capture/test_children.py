"""Children record their own death and leave nothing when they end well."""

from __future__ import annotations

import signal

import pytest

from conditions import Interpreter
from jobs import CRASH, Jobs


def test_a_forked_child_writes_its_own_record(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import os
        def deep():
            {CRASH}
        pid = os.fork()
        if pid == 0:
            deep()
        print(pid, os.WTERMSIG(os.waitpid(pid, 0)[1]), os.getpid())
        """
    done = jobs.run(python, code)
    child, number, parent = (int(word) for word in done.out.split())
    assert (done.status, number) == (0, signal.SIGSEGV)
    assert done.record["process"]["pid"] == child
    assert done.record["process"]["fork_of"] == parent
    assert "in deep" in done.record["python"]["text"]


def test_parent_and_child_that_both_crash(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import os
        if os.fork() == 0:
            def child_function():
                {CRASH}
            child_function()
        os.wait()
        def parent_function():
            {CRASH}
        parent_function()
        """
    done = jobs.run(python, code)
    assert done.status == -signal.SIGSEGV
    texts = sorted(record["python"]["text"].count("in parent_function") for record in done.records)
    assert texts == [0, 1]
    assert len({record["process"]["pid"] for record in done.records}) == 2
    assert len({path.parent for path in done.paths}) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_record_with_the_parents_settings(
    method: str, python: Interpreter, jobs: Jobs
) -> None:
    code = f"""
        import multiprocessing as mp
        def work(x):
            {CRASH}
        if __name__ == "__main__":
            child = mp.get_context("{method}").Process(target=work, args=(1,))
            child.start(); child.join()
            print(child.pid, child.exitcode)
        """
    install = 'if __name__ == "__main__": ftforensics.install(dir="here", helper="none", raw_stack=True)'
    done = jobs.run(python, code, install=install)
    pid, status = (int(word) for word in done.out.split())
    assert (done.status, status) == (0, -signal.SIGSEGV), done.err
    assert done.record["process"]["pid"] == pid
    assert done.record["tool"]["raw_stack"] is True and done.record["tool"]["helper"] == "none"
    assert done.paths[0].parent == done.folder / "here"
    assert "in work" in done.record["python"]["text"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_that_cannot_import_us_runs_all_the_same(method: str, python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import multiprocessing as mp, sys
        def work(x):
            sys.exit(7 if "ftforensics" not in sys.modules else 8)
        if __name__ == "__main__":
            import ftforensics.capture.spawn as spawn
            spawn.package_parent = lambda: "/nowhere"
            import os
            os.environ.pop("PYTHONPATH"); sys.path[:] = [p for p in sys.path if not p.endswith("src")]
            child = mp.get_context("{method}").Process(target=work, args=(1,))
            child.start(); child.join()
            print(child.exitcode)
        """
    install = 'if __name__ == "__main__": import ftforensics; ftforensics.install(helper="none")'
    head = f"import sys\n{install}\n"
    done = jobs.run(python, head + "import textwrap\n" + "exec(textwrap.dedent('''" + code + "'''))", install=None)
    assert (done.out, done.err) == ("7\n", "")


def test_a_hundred_epochs_of_workers_leave_nothing(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import multiprocessing as mp, os
        def work(queue, x):
            queue.put(x)
        if __name__ == "__main__":
            context = mp.get_context("fork")
            before = len(os.listdir("/proc/self/fd"))
            for epoch in range(100):
                queue = context.SimpleQueue()
                workers = [context.Process(target=work, args=(queue, n)) for n in range(2)]
                for w in workers: w.start()
                got = sorted(queue.get() for w in workers)
                for w in workers: w.join(); assert w.exitcode == 0
                queue.close()
            del workers, w, queue
            print(got, len(os.listdir("/proc/self/fd")) - before <= 2)
        """
    done = jobs.run(python, code)
    assert (done.status, done.out, done.err) == (0, "[0, 1] True\n", "")
    assert [path.name for path in done.folder.iterdir()] == ["program.py"]


def test_a_worker_ended_by_its_parent_leaves_nothing(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import multiprocessing as mp, time
        def work(ready):
            ready.set(); time.sleep(60)
        if __name__ == "__main__":
            ready = mp.get_context("fork").Event()
            child = mp.get_context("fork").Process(target=work, args=(ready,))
            child.start(); ready.wait(20); child.terminate(); child.join()
            print(child.exitcode)
        """
    done = jobs.run(python, code)
    assert (done.status, done.out, done.err) == (0, "-15\n", "")
    assert [path.name for path in done.folder.iterdir()] == ["program.py"]


def test_subprocesses_are_not_captured_and_keep_their_death(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import subprocess, sys
        print(subprocess.run([sys.executable, "-c", {CRASH!r}]).returncode)
        """
    done = jobs.run(python, code)
    assert (done.status, done.out) == (0, "-11\n")
    assert done.paths == []


@pytest.mark.parametrize("end", ["return", "1 / 0"])
def test_a_child_that_a_thread_forked_ends_with_the_threads_function(end: str, python: Interpreter, jobs: Jobs) -> None:
    """The C library ends a process with its last thread, and ours is one of them."""
    code = f"""
        import os, threading
        def fork():
            pid = os.fork()
            if pid == 0:
                {end}
                return
            print(os.waitpid(pid, 0)[1])
        forks = threading.Thread(target=fork)
        forks.start(); forks.join()
        """
    done = jobs.run(python, code)
    assert (done.status, done.out) == (0, "0\n"), done.err


def test_a_process_whose_main_thread_left_ends_with_the_last_of_the_others(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import ctypes, threading, time
        def work():
            time.sleep(0.4)
            print("done", flush=True)
        if __name__ == "__main__":
            threading.Thread(target=work).start()
            ctypes.CDLL(None).pthread_exit(None)
        """
    done = jobs.run(python, code)
    assert (done.status, done.out) == (0, "done\n"), done.err

"""Uncaught exceptions: recorded where they end a process, gone where it ends well, unnoticed by the job."""

from __future__ import annotations

import os
import re
import signal
import stat
import time

import pytest

from conditions import PYTHONS, Interpreter
from exception_records import exceptions, only_exception
from jobs import Jobs

NEWEST = PYTHONS[-1]


def test_what_ended_the_main_program(python: Interpreter, jobs: Jobs) -> None:
    code = """
        class Broken(ValueError):
            pass
        def load(path):
            with ftforensics.phase("load"):
                open(path)
        ftforensics.step(7)
        with ftforensics.phase("train"):
            try:
                load("/nowhere/shard")
            except OSError as error:
                raise Broken("no data") from error
        """
    before = time.time()
    done = jobs.run(python, code, RANK="1", LOCAL_RANK="1", WORLD_SIZE="4", TORCHELASTIC_RESTART_COUNT="2")
    assert done.status == 1
    record = only_exception(done.folder)
    (path,) = done.folder.rglob("*.exception.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert re.fullmatch(r"[\w.]+-rank1-\d+-\d+\.exception\.json", path.name)
    first, second = record.exceptions
    assert (first.type, first.message, first.bases) == ("__main__.Broken", "no data", ["ValueError", "Exception"])
    assert [(frame.function, frame.line) for frame in first.frames] == [("<module>", 14)]
    assert first.frames[0].file == str(done.folder / "program.py")
    assert (second.type, second.link, second.errno, second.filename) == (
        "FileNotFoundError", "cause", 2, "/nowhere/shard",
    )  # fmt: skip
    assert [frame.function for frame in second.frames] == ["<module>", "load"]
    assert record.hook == "sys.excepthook" and record.thread is None and record.peer_lost is False
    assert (record.phase, record.step, record.attempt, record.worker_of) == ("train", 7, 2, None)
    assert record.process is not None and record.process.main_thread is True
    assert record.job is not None and (record.job.rank, record.job.world_size) == (1, 4)
    assert record.time is not None and record.time.realtime is not None and record.time.boot_id is not None
    assert before < record.time.realtime < time.time()


def test_raised_while_another_was_handled(python: Interpreter, jobs: Jobs) -> None:
    code = """
        try:
            {}["seed"]
        except KeyError:
            1 / 0
        """
    record = only_exception(jobs.run(python, code).folder)
    assert [(one.type, one.link) for one in record.exceptions] == [("ZeroDivisionError", None), ("KeyError", "context")]


def test_from_none_hides_what_came_before(jobs: Jobs) -> None:
    code = """
        try:
            {}["seed"]
        except KeyError:
            raise ValueError("x") from None
        """
    assert [one.type for one in only_exception(jobs.run(NEWEST, code).folder).exceptions] == ["ValueError"]


def test_of_a_group_the_first_leaf(python: Interpreter, jobs: Jobs) -> None:
    if python.version < (3, 11):
        pytest.skip("ExceptionGroup came with 3.11")
    code = """
        def fail():
            try:
                open("/nowhere/x")
            except OSError as error:
                raise ValueError("leaf") from error
        try:
            fail()
        except ValueError as error:
            raise ExceptionGroup("outer", [ExceptionGroup("inner", [error]), KeyError(1)])
        """
    first, second = only_exception(jobs.run(python, code).folder).exceptions
    assert (first.type, first.message, first.frames[-1].function) == ("ValueError", "leaf", "fail")
    assert (second.type, second.link) == ("FileNotFoundError", "cause")


def test_an_interrupt_is_recorded_too(python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, "import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(30)")
    assert done.status == -signal.SIGINT  # not 1: the interpreter ends itself as a shell expects it
    assert only_exception(done.folder).exceptions[0].type == "KeyboardInterrupt"


THREAD = """
import threading
def load():
    raise ValueError("shard 3")
thread = threading.Thread(target=load, name="loader")
thread.start()
thread.join()
"""


def test_a_thread_of_a_process_that_ends_well_leaves_nothing(python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, THREAD)
    assert "shard 3" in done.err
    assert [path.name for path in done.folder.iterdir()] == ["program.py"]


def test_a_thread_of_a_process_that_leaves_by_os_exit_0_leaves_nothing(python: Interpreter, jobs: Jobs) -> None:
    seen = "import os; assert any(n.endswith('.exception.json') for _, _, f in os.walk('.') for n in f); os._exit(0)"
    done = jobs.run(python, THREAD + seen)
    assert done.status == 0, done.err
    assert [path.name for path in done.folder.iterdir()] == ["program.py"]


def test_a_thread_of_a_process_that_fails_is_kept(python: Interpreter, jobs: Jobs) -> None:
    record = only_exception(jobs.run(python, THREAD + "import sys; sys.exit(1)").folder)
    assert (record.hook, record.thread) == ("threading.excepthook", "loader")
    assert record.exceptions[0].message == "shard 3"


def test_a_thread_that_was_recorded_does_not_hide_the_main_programs_end(python: Interpreter, jobs: Jobs) -> None:
    # the second exception gets the address of the first, its class and its line
    found = exceptions(jobs.run(python, THREAD + "load()").folder)
    assert [record.hook for record in found] == ["sys.excepthook", "threading.excepthook"]


def test_a_thread_that_only_leaves_is_none(jobs: Jobs) -> None:
    code = "import sys, threading\nt = threading.Thread(target=sys.exit)\nt.start(); t.join(); sys.exit(1)"
    assert exceptions(jobs.run(NEWEST, code).folder) == []


def test_threads_by_the_thousand_do_not_fill_a_disk(jobs: Jobs) -> None:
    code = """
        import threading
        threading.excepthook = lambda args: None
        ftforensics.uninstall()
        ftforensics.install(helper="none")
        for _ in range(300):
            thread = threading.Thread(target=lambda: 1 / 0)
            thread.start()
            thread.join()
        raise KeyError("last")
        """
    found = exceptions(jobs.run(NEWEST, code).folder)
    assert len(found) == 9
    assert [one.exceptions[0].type for one in found if one.thread is None] == ["KeyError"]


def test_uninstalled_nothing_is_recorded(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import sys, threading
        ftforensics.uninstall()
        assert sys.excepthook is sys.__excepthook__ and threading.excepthook is threading.__excepthook__
        raise ValueError
        """
    done = jobs.run(python, code)
    assert done.status == 1 and "AssertionError" not in done.err
    assert [path.name for path in done.folder.iterdir()] == ["program.py"]


REPLACED = {
    "prints itself": "sys.excepthook = lambda *what: print('mine', what[0].__name__)",
    "raises": "def mine(*what):\n    raise KeyError('hook')\nsys.excepthook = mine",
    "leaves": "import os\nsys.excepthook = lambda *what: os._exit(9)",
    "is none": "del sys.excepthook",
    "calls the one before": "before = sys.excepthook\nsys.excepthook = lambda *what: (print('mine'), before(*what))",
    "waits for a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(0.3,)).start()\n"
        "sys.excepthook = lambda *what: print('mine')"
    ),
}


@pytest.mark.parametrize("hook", REPLACED)
def test_a_hook_that_came_after_us(hook: str, python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, f"import sys\n{REPLACED[hook]}\nraise ValueError('x')")
    assert done.status == (9 if hook == "leaves" else 1)
    assert only_exception(done.folder).exceptions[0].type == "ValueError"


def test_what_others_leave_in_last_value_did_not_end_the_program(python: Interpreter, jobs: Jobs) -> None:
    """As pytest does for a test that failed."""
    code = """
        import sys
        def test():
            assert False
        def run():
            try:
                test()
            except AssertionError as error:
                sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
                sys.last_exc = error
        run()
        sys.exit(1)
        """
    done = jobs.run(python, code)
    assert done.status == 1 and exceptions(done.folder) == []


HARD = {
    "str raises": "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E",
    "str is no text": "class E(Exception):\n    def __str__(self): return 5\nraise E",
    "str leaves": "class E(Exception):\n    def __str__(self): raise SystemExit(5)\nraise E",
    "deep": "def f(n):\n    f(n + 1)\nf(0)",
    "itself its context": "a = ValueError('a')\nb = KeyError('b')\na.__context__ = b\nb.__context__ = a\nraise a",
    "a long chain": (
        "error = None\nfor n in range(200):\n    made = ValueError(n)\n    made.__cause__ = error\n    error = made\n"
        "raise error"
    ),
    "huge": "raise ValueError('x y ' * 10_000_000)",
    "no text at all": "raise ValueError('\\udcff\\x00\\x1b[2J')",
    "no memory": "x = 'x' * (1 << 62)",
    "not imported": "import nowhere_to_be_found",
    "bad syntax": "exec('def (')",
    "an errno that is none": "e = OSError(1, 'x')\ne.errno = 'a'\ne.filename = 7\nraise e",
    "a lying class": "class E(Exception):\n    pass\nE.__module__ = 7\nE.__qualname__ = 'a' * 10000\nraise E",
}


@pytest.mark.parametrize("trouble", HARD)
def test_hard_ones(trouble: str, python: Interpreter, jobs: Jobs) -> None:
    cwd = jobs.fresh()
    without = jobs.run(python, HARD[trouble], install="0", cwd=cwd)
    done = jobs.run(python, HARD[trouble], cwd=cwd)
    assert (done.status, done.out, done.err) == (without.status, without.out, without.err)
    record = only_exception(done.folder)
    (path,) = done.folder.rglob("*.exception.json")
    assert path.stat().st_size < 200_000
    assert 1 <= len(record.exceptions) <= 8
    assert all(len(one.message) <= 4096 and len(one.frames) <= 100 for one in record.exceptions)


SAME = {
    "a plain one": "def f():\n    raise ValueError('x')\nf()",
    "chained": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "in a thread": THREAD,
    "a hook that raises": "import sys\ndef mine(*what):\n    raise KeyError('hook')\nsys.excepthook = mine\n1/0",
    "a thread hook that raises": (
        "import threading\ndef mine(args):\n    raise KeyError('hook')\nthreading.excepthook = mine\n" + THREAD
    ),
    "exit with text": "import sys; sys.exit('no data')",
    "exit in a thread": "import sys, threading\nt = threading.Thread(target=sys.exit, args=(4,)); t.start(); t.join()",
    "the hook called by the job": "import sys\ntry:\n    1/0\nexcept Exception:\n    sys.excepthook(*sys.exc_info())",
    "the hook called wrongly": "import sys\nsys.excepthook(1)",
    "stderr is gone": "import sys\nsys.stderr = None\n1/0",
    "stderr is broken": "import os\nos.close(2)\n1/0",
    "left by a child": "import os\nif os.fork() == 0:\n    1/0\nprint(os.wait()[1])",
    "a process": (
        "import multiprocessing\nif __name__ == '__main__':\n    c = multiprocessing.get_context('fork')\n"
        "    p = c.Process(target=int, args=('x',)); p.start(); p.join(); print(p.exitcode)"
    ),
    "names of the hooks": "import sys, threading\nprint(sys.excepthook.__name__, callable(threading.excepthook))",
}


@pytest.mark.parametrize("flags", [(), ("-W", "error"), ("-X", "dev")], ids=["plain", "errors", "dev"])
@pytest.mark.parametrize("what", SAME)
def test_the_job_notices_nothing(what: str, flags: tuple[str, ...], python: Interpreter, jobs: Jobs) -> None:
    cwd = jobs.fresh()
    without = jobs.run(python, SAME[what], install="0", cwd=cwd, flags=flags)
    done = jobs.run(python, SAME[what], cwd=cwd, flags=flags)
    assert (done.status, done.out, done.err) == (without.status, without.out, without.err)


def test_a_secret_in_the_message_and_in_the_command_line(python: Interpreter, jobs: Jobs) -> None:
    key = "hf_" + "abcDEF0123456789abcDEF01"
    code = f"raise ValueError('login failed: token={key} https://me:hunter2@host/x')"
    done = jobs.run(python, code, "--api-key", "s3cr3tw0rd", RANK="0", HF_TOKEN=key)
    (path,) = done.folder.rglob("*.exception.json")
    text = path.read_text()
    assert key not in text and "hunter2" not in text and "s3cr3tw0rd" not in text
    assert "login failed: token=[redacted]" in only_exception(done.folder).exceptions[0].message


def test_another_ones_end_is_told_as_such(jobs: Jobs) -> None:
    own = "raise RuntimeError('loss is NaN')"
    peer = (
        "raise RuntimeError('[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:1')"
    )
    wrapped = f"try:\n    {peer}\nexcept RuntimeError as e:\n    raise ValueError('step failed') from e"
    found = [only_exception(jobs.run(NEWEST, code).folder).peer_lost for code in (own, peer, wrapped)]
    assert found == [False, True, True]


def test_a_full_disk_keeps_the_first_lines(jobs: Jobs) -> None:
    """A limit on the size of files is met as a full disk is: the kernel writes what fits."""
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
        raise ValueError("x")
        """
    cwd = jobs.fresh()
    done = jobs.run(NEWEST, code, cwd=cwd)
    assert done.status == 1 and done.err.endswith("ValueError: x\n")
    record = only_exception(cwd)
    assert record.process is not None and record.hook == "sys.excepthook" and record.job is None


def test_a_folder_that_is_gone_is_made_again(python: Interpreter, jobs: Jobs) -> None:
    code = "import shutil; shutil.rmtree('ftforensics'); raise ValueError('x')"
    assert only_exception(jobs.run(python, code).folder).exceptions[0].message == "x"


def test_a_link_in_its_place_is_not_followed(jobs: Jobs) -> None:
    code = """
        import os
        from ftforensics import _native
        path = os.fsdecode(_native.record_path()).replace(".crash.json", ".exception.json")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.path.abspath("elsewhere"), path)
        raise ValueError("x")
        """
    done = jobs.run(NEWEST, code)
    assert not (done.folder / "elsewhere").exists()
    (path,) = [path for path in done.folder.rglob("*.exception.json") if not path.is_symlink()]
    assert path.name.endswith("-1.exception.json")


def test_a_module_run_by_name(python: Interpreter, jobs: Jobs) -> None:
    cwd = jobs.fresh()
    (cwd / "job.py").write_text(
        "import ftforensics, sys\nftforensics.install(helper='none')\nsys.excepthook = print\n1/0\n"
    )
    done = jobs.run(python, "import runpy; runpy.run_module('job', run_name='__main__')", install="0", cwd=cwd)
    assert done.status == 1
    assert only_exception(cwd).exceptions[0].frames[-1].file == str(cwd / "job.py")


CHILD = """
import multiprocessing
def work(n):
    raise ValueError(f"item {n}")
class Worker(multiprocessing.Process):
    def run(self):
        work(2)
def start(method):
    context = multiprocessing.get_context(method)
    child = context.Process(target=work, args=(1,))
    child.start()
    child.join()
    assert child.exitcode == 1
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing(method: str, python: Interpreter, jobs: Jobs) -> None:
    code = CHILD + f"if __name__ == '__main__':\n    import os; print(os.getpid())\n    start({method!r})\n"
    cwd = jobs.fresh()
    without = jobs.run(python, code, install="0", cwd=cwd)
    done = jobs.run(python, code, install="if __name__ == '__main__': ftforensics.install(helper='none')", cwd=cwd)
    assert (done.status, done.err) == (0, without.err)
    record = only_exception(done.folder)
    assert record.hook == "multiprocessing" and record.exceptions[0].message == "item 1"
    assert record.worker_of == int(done.out)


def test_a_child_with_a_run_of_its_own(python: Interpreter, jobs: Jobs) -> None:
    code = CHILD + "multiprocessing.set_start_method('fork')\nw = Worker(); w.start(); w.join()\n"
    assert only_exception(jobs.run(python, code).folder).exceptions[0].message == "item 2"


def test_a_child_that_leaves_by_itself_has_only_its_status(python: Interpreter, jobs: Jobs) -> None:
    code = (
        "import multiprocessing, sys, time\n"
        "def work():\n    time.sleep(0.3)\n    sys.exit(3)\n"
        "p = multiprocessing.get_context('fork').Process(target=work)\np.start(); p.join(); assert p.exitcode == 3\n"
    )
    done = jobs.run(python, code)
    assert done.status == 0, done.err
    assert exceptions(done.folder) == []
    assert [path.suffix for path in done.folder.rglob("*") if path.is_file()] == [".py", ".ring"]


def test_workers_of_a_pool_hand_theirs_to_the_parent(python: Interpreter, jobs: Jobs) -> None:
    code = (
        "import concurrent.futures, multiprocessing\n"
        "with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as pool:\n"
        "    pool.submit(int, 'x').result()\n"
    )
    record = only_exception(jobs.run(python, code).folder)
    assert record.hook == "sys.excepthook" and record.exceptions[0].type == "ValueError"


def test_a_dead_file_system_does_not_keep_the_process(jobs: Jobs) -> None:
    """A FIFO nobody reads stands for it: opening it waits for ever."""
    code = """
        import os, time
        os.write = lambda fd, data: time.sleep(60)
        begin = time.monotonic()
        import atexit
        atexit.register(lambda: print(time.monotonic() - begin < 10))
        raise ValueError("x")
        """
    done = jobs.run(NEWEST, code)
    assert done.out == "True\n" and done.err.endswith("ValueError: x\n")


def test_nothing_is_imported_for_it_at_install(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import sys
        print([name for name in ("re", "json", "traceback", "linecache", "threading") if name in sys.modules])
        """
    bare = jobs.run(python, code, install="0", flags=("-S",))
    assert jobs.run(python, code, flags=("-S",)).out == bare.out


def test_no_descriptor_is_left_open(jobs: Jobs) -> None:
    count = "import os; print(len(os.listdir('/proc/self/fd')))\n"
    out = jobs.run(NEWEST, count + THREAD + count, "x").out.split()
    assert out[0] == out[1]
    assert os.path.exists("/proc/self/fd")

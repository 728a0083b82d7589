"""install() and uninstall(): order, arguments, and that the job goes on whatever is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def run(code: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """A program that starts with the stand-in as `native` and ftforensics imported."""
    head = "import stand_in_native as native, ftforensics, sys, os\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code)],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'src'}:{HERE / 'programs'}", **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def passes(code: str, cwd: Path, **environ: str) -> str:
    done = run(code, cwd, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_the_extension_is_given(tmp_path: Path) -> None:
    passes(
        """
        ftforensics.install()
        call = native.calls[0]
        assert call[0] == "install"
        directory, stem, members, helper, environment, inventory, memory, raw = call[1:]
        assert os.path.dirname(directory) == os.fsencode(os.getcwd()) + b"/ftforensics"
        assert stem.endswith(b"-rank3")
        assert members.startswith(b'"tool": {')
        assert helper[0] == os.fsencode(sys.executable) and helper[1] == b"-I" and helper[-1] == b"crash-reporter"
        assert inventory[-1] == b"inventory"
        assert raw is False
        assert not any(entry.startswith((b"LD_", b"PYTHON")) for entry in environment)
        # faulthandler's register() puts its own alternate stack in place, so the thread is looked at after it
        assert native.names()[1:4] == ["configure_recorder", "set_python_dumper", "check_thread"], native.names()
        # marks of before are known when the ring is made, and there is one when its thread starts
        assert native.names()[-2:] == ["start_recorder", "start_watcher"]
        version, text, mount, root, cgroup_version, local, gpu, removable, *ranks = native.calls[1][1:]
        entries = text.split(bytes(1))
        assert b"host=" + os.uname().nodename.encode() in entries
        assert b"argv=-c" in entries and entries[-1] == b""
        assert cgroup_version in (0, 1, 2) and local.endswith(b"/ftforensics-%d" % os.getuid())
        assert removable == [directory, os.path.dirname(directory)]
        assert ranks == [3, -1, -1, 0]
        """,
        tmp_path,
        RANK="3",
        LD_LIBRARY_PATH="/nowhere",
    )


def test_helper_none_starts_nothing_outside(tmp_path: Path) -> None:
    passes(
        """
        ftforensics.install(helper="none", raw_stack=True)
        assert native.calls[0][4] == [] and native.calls[0][6] == [] and native.calls[0][8] is True
        """,
        tmp_path,
    )


def test_wrong_arguments_are_one_clear_error_and_change_nothing(tmp_path: Path) -> None:
    passes(
        """
        for error, arguments, word in [
            (ValueError, {"helper": "yes"}, "'yes'"),
            (TypeError, {"helper": None}, "NoneType"),
            (TypeError, {"raw_stack": 1}, "int"),
            (TypeError, {"dir": 3}, "int"),
            (ValueError, {"dir": ""}, "empty"),
            (ValueError, {"dir": "a\\0b"}, "path"),
        ]:
            try:
                ftforensics.install(**arguments)
            except error as raised:
                assert word in str(raised), raised
            else:
                raise AssertionError(arguments)
        assert native.calls == [] and os.listdir() == []
        """,
        tmp_path,
    )


def test_a_refusing_extension_costs_one_line(tmp_path: Path) -> None:
    done = run(
        """
        native.fail["install"] = OSError(12, "sigaltstack: Cannot allocate memory")
        import faulthandler, threading
        before = faulthandler.enable, threading.Thread._bootstrap_inner
        ftforensics.install()
        assert (faulthandler.enable, threading.Thread._bootstrap_inner) == before
        with ftforensics.phase("x"):
            ftforensics.step(1)
        ftforensics.uninstall()
        print("the job went on", os.listdir())
        """,
        tmp_path,
    )
    assert done.returncode == 0
    assert done.stdout == "the job went on []\n"
    assert done.stderr == "ftforensics: capture is off: sigaltstack: Cannot allocate memory\n"


def test_a_missing_extension_costs_one_line(tmp_path: Path) -> None:
    done = run(
        """
        sys.modules["ftforensics._native"] = None
        ftforensics.install()
        print("the job went on", os.listdir())
        """,
        tmp_path,
    )
    assert done.returncode == 0
    assert done.stdout == "the job went on []\n"
    assert done.stderr.startswith("ftforensics: capture is off: ") and done.stderr.count("\n") == 1


def test_no_stderr_at_all(tmp_path: Path) -> None:
    done = run("sys.modules['ftforensics._native'] = None; sys.stderr = None; ftforensics.install()", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_platforms_that_are_not_supported_say_which(tmp_path: Path) -> None:
    done = run(
        """
        sys.platform = "darwin"; ftforensics.install(); sys.platform = "linux"
        os.confstr = lambda name: None
        ftforensics.install()
        sys.abiflags = "t"; ftforensics.install()
        assert native.calls == []
        """,
        tmp_path,
    )
    lines = done.stderr.splitlines()
    assert [line.startswith("ftforensics: capture is off: ") for line in lines] == [True] * 3
    assert "darwin" in lines[0] and "glibc" in lines[1] and "free-threaded" in lines[2]


def test_without_a_place_for_the_dumper_records_lack_python_stacks_only(tmp_path: Path) -> None:
    done = run(
        """
        def refuse(name, flags=0):
            raise OSError(38, "Function not implemented")
        os.memfd_create = refuse
        ftforensics.install()
        assert "start_watcher" in native.names() and "set_python_dumper" not in native.names()
        """,
        tmp_path,
    )
    assert done.returncode == 0
    assert done.stderr == "ftforensics: records will lack Python stacks: Function not implemented\n"


def test_a_read_only_place_is_named_and_another_one_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(
        "ftforensics.install(dir='file/x'); print(native.calls[0][1].decode())",
        tmp_path,
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    assert done.stdout.startswith(str(tmp_path / "state/ftforensics"))
    assert done.stderr.startswith("ftforensics: file/x: Not a directory; records go to ")
    assert done.stderr.count("\n") == 1


def test_installing_again_changes_the_folder_and_adds_no_second_hook(tmp_path: Path) -> None:
    passes(
        """
        import faulthandler
        ftforensics.install(dir="a")
        first = faulthandler.enable
        ftforensics.install(dir="b", helper="none")
        assert faulthandler.enable is first
        assert [os.path.basename(c[1]) for c in native.calls if c[0] == "install"] == [b"a", b"b"]
        assert native.names().count("start_watcher") == 1
        assert os.listdir() == ["b"]
        """,
        tmp_path,
    )
    assert os.listdir(tmp_path) == []  # and at exit the second goes too


def test_uninstall_gives_everything_back(tmp_path: Path) -> None:
    passes(
        """
        import faulthandler, threading, importlib.machinery as machinery
        def state():
            return (
                faulthandler.enable, faulthandler.disable,
                dict(vars(threading.Thread)),
                dict(vars(machinery.ExtensionFileLoader)), dict(vars(machinery.SourceFileLoader)),
            )
        def fds():
            return sorted(os.listdir("/proc/self/fd"))
        before, opened = state(), fds()
        ftforensics.install(dir="x")
        assert state() != before
        ftforensics.uninstall()
        assert state() == before
        assert fds() == opened
        assert native.names()[-1] == "uninstall"
        assert os.listdir() == []
        ftforensics.uninstall()  # a second time is nothing
        count = len(native.calls)
        if os.fork() == 0:
            assert len(native.calls) == count
            os._exit(0)
        assert os.wait()[1] == 0
        assert len(native.calls) == count  # the fork hooks are quiet
        ftforensics.install(dir="x")  # and it can come back
        assert native.names()[-1] == "start_watcher"
        """,
        tmp_path,
    )


def test_uninstall_leaves_what_somebody_put_over_it(tmp_path: Path) -> None:
    passes(
        """
        import faulthandler
        ftforensics.install()
        theirs = lambda *a, **k: None
        faulthandler.enable = theirs
        ftforensics.uninstall()
        assert faulthandler.enable is theirs
        """,
        tmp_path,
    )


def test_faulthandler_is_followed(tmp_path: Path) -> None:
    passes(
        """
        import faulthandler
        ftforensics.install()
        assert ("set_faulthandler_fd", -1) in native.calls
        del native.calls[:]
        with open("log", "w") as log:
            faulthandler.enable(log, all_threads=False)
            assert native.calls == [("set_faulthandler_fd", log.fileno()), ("check_thread",), ("check_handlers",)]
            assert faulthandler.is_enabled()
            faulthandler.disable()
        faulthandler.enable()
        assert ("set_faulthandler_fd", 2) in native.calls
        faulthandler.enable(file=7)
        assert native.calls[-3] == ("set_faulthandler_fd", 7)
        del native.calls[:]
        try:
            faulthandler.enable(all_threads="x", nonsense=1)
        except TypeError:
            pass
        assert native.calls == []  # the error is the job's, as before
        assert faulthandler.disable() is True
        assert native.calls == [("set_faulthandler_fd", -1), ("check_handlers",)]
        """,
        tmp_path,
    )


def test_faulthandler_that_was_on_before_us(tmp_path: Path) -> None:
    passes("ftforensics.install(); assert ('set_faulthandler_fd', 2) in native.calls", tmp_path, PYTHONFAULTHANDLER="1")


def test_threads_are_looked_at_when_threading_comes_later_or_was_there(tmp_path: Path) -> None:
    # -S -E: no site hook of this machine has imported threading already
    code = """
        import stand_in_native as native, ftforensics, os
        ftforensics.install()
        assert "threading" not in sys.modules
        import threading
        del native.calls[:]
        thread = threading.Thread(target=lambda: native.calls.append("ran")); thread.start(); thread.join()
        assert native.calls == [("check_thread",), "ran"], native.calls
        """
    head = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(HERE / 'programs')!r}]\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", head + textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    passes(
        """
        import threading
        ftforensics.install()
        del native.calls[:]
        thread = threading.Thread(target=int); thread.start(); thread.join()
        assert native.calls == [("check_thread",)], native.calls
        """,
        tmp_path,
    )


def test_a_source_import_leaves_no_trace_of_us(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("def f():\n    raise KeyError\n")
    passes(
        """
        import importlib.machinery as machinery
        before = list(sys.meta_path), list(sys.path_hooks)
        ftforensics.install()
        sys.path.insert(0, "")
        import plain
        assert (sys.meta_path, sys.path_hooks) == before
        assert type(plain.__spec__.loader) is machinery.SourceFileLoader
        """,
        tmp_path,
    )


def test_fork_stops_the_watcher_and_starts_it_again(tmp_path: Path) -> None:
    passes(
        """
        ftforensics.install()
        del native.calls[:]
        if os.fork() == 0:
            os._exit(0 if native.names() == ["stop_watcher", "after_fork_child"] else 1)
        assert os.wait()[1] == 0
        start = "start_watcher" if sys.version_info < (3, 13) else "start_watcher_later"
        assert native.names() == ["stop_watcher", start]
        """,
        tmp_path,
    )


def test_a_forked_child_dumps_to_a_memfd_of_its_own(tmp_path: Path) -> None:
    passes(
        """
        ftforensics.install()
        fd = next(c[3] for c in native.calls if c[0] == "set_python_dumper")
        assert fd >= 20
        mine = os.fstat(fd).st_ino
        if os.fork() == 0:
            theirs = os.fstat(fd).st_ino
            os._exit(0 if theirs != mine and not os.get_inheritable(fd) else 1)
        assert os.wait()[1] == 0
        os.dup2(1, fd)  # the job took the number
        if os.fork() == 0:
            os._exit(0 if os.fstat(fd).st_ino == os.fstat(1).st_ino else 1)
        assert os.wait()[1] == 0
        """,
        tmp_path,
    )


def test_the_dumper_takes_signals_that_nobody_uses(tmp_path: Path) -> None:
    passes(
        """
        import signal
        signal.signal(64, lambda *a: None)
        signal.signal(62, signal.SIG_IGN)
        ftforensics.install()
        assert [c[1:3] for c in native.calls if c[0] == "set_python_dumper"] == [(63, 61)]
        """,
        tmp_path,
    )


def test_the_folder_taken_away_by_another_rank_between_making_and_opening(tmp_path: Path) -> None:
    passes(
        """
        taken = []
        real = native.module.install
        def install(directory, *rest):
            if not taken:
                taken.append(directory); os.rmdir(directory); os.rmdir(os.path.dirname(directory))
            real(directory, *rest)
        native.module.install = install
        ftforensics.install()
        assert native.names()[-1] == "start_watcher" and os.path.isdir(taken[0])
        """,
        tmp_path,
    )


def test_exit_is_announced_and_the_folder_removed(tmp_path: Path) -> None:
    out = passes(
        """
        import atexit
        atexit.register(lambda: print(native.names()[-1], os.listdir()))  # registered first, runs last
        ftforensics.install()
        """,
        tmp_path,
    )
    assert out == "set_python_state []\n"

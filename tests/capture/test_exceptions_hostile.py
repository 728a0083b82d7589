"""Uncaught exceptions that lie, hang or find no memory: the job ends as it would have without us."""

from __future__ import annotations

import pytest

from conditions import PYTHONS, Interpreter
from exception_records import only_exception
from jobs import Jobs

NEWEST = PYTHONS[-1]
OFFSETS = 12

LIES = """
class Liar(Exception):
    def __getattribute__(self, name):
        raise SystemExit(7)
raise Liar("x")
"""
PROPERTIES = """
class Liar(Exception):
    def lie(self):
        raise RuntimeError("lie")
    __traceback__ = __cause__ = __context__ = __suppress_context__ = exceptions = property(lie)
raise Liar("x")
"""
NAMES = """
class Names(type):
    __module__ = "builtins"
    @property
    def __name__(self):
        raise RuntimeError("lie")
class Liar(Exception, metaclass=Names):
    __module__ = "builtins"
raise Liar("x")
"""
LOOKS = """
class Looks(type):
    def __getattribute__(self, name):
        if name not in ("__module__", "__qualname__"):  # which the interpreter itself asks for
            print(name)
        return super().__getattribute__(name)
class Liar(Exception, metaclass=Looks):
    pass
raise Liar("x")
"""
PARTS = """
class Text(str):
    def __getitem__(self, at):
        print(at)
        return "y"
class Liar(Exception):
    def __str__(self):
        return Text("x")
raise Liar
"""


@pytest.mark.parametrize("program", [LOOKS, PARTS], ids=["metaclass", "text"])
def test_no_code_of_the_job_runs_but_what_the_interpreter_calls_too(
    program: str, python: Interpreter, jobs: Jobs
) -> None:
    done = jobs.run(python, program)
    assert (done.status, done.out) == (1, "")
    (first,) = only_exception(done.folder).exceptions
    assert (first.type.rpartition(".")[2], first.message) == ("Liar", "x")


@pytest.mark.parametrize("program", [LIES, PROPERTIES, NAMES], ids=["every attribute", "properties", "names"])
def test_one_that_lies_is_recorded_by_what_the_interpreter_sees(program: str, python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, program)
    assert done.status == 1
    assert "ftforensics/capture" not in done.err
    (first,) = only_exception(done.folder).exceptions
    assert first.type.rpartition(".")[2] == "Liar"
    assert [frame.function for frame in first.frames] == ["<module>"]


def test_the_hook_does_not_wait_for_a_text(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import os, sys, time
        class Stuck(Exception):
            def __str__(self):
                while True:
                    pass
        ended = sys.excepthook
        def hook(kind, value, traceback):
            print("mine", flush=True)
            os._exit(3)
        sys.modules["ftforensics"].uninstall()
        sys.excepthook = hook
        sys.modules["ftforensics"].install(helper="none")
        raise Stuck("x")
        """
    done = jobs.run(python, code)
    assert (done.status, done.out) == (3, "mine\n")
    assert only_exception(done.folder).exceptions[0].message == "<str() of it did not return>"


@pytest.mark.parametrize("module", ["sys", "threading"])
def test_who_asks_whether_there_is_a_hook_is_answered_as_without_us(
    module: str, python: Interpreter, jobs: Jobs
) -> None:
    code = f"import {module} as m; print(m.excepthook is m.__excepthook__, end=' ')\n"
    after = code + "import ftforensics; ftforensics.uninstall()\n" + code
    assert jobs.run(python, after).out == "True True "
    own = f"import {module} as m; m.excepthook = lambda *told: None\nimport ftforensics\nftforensics.install()\n" + code
    assert jobs.run(python, own, install=None).out == "False "


def test_a_console_within_the_program_prints_where_it_did(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import code
        class Console(code.InteractiveConsole):
            def write(self, text):
                print("console:", text.strip().splitlines()[-1])
        Console().push("1 / 0")
        """
    done = jobs.run(python, code)
    assert (done.status, done.out, done.err) == (0, "console: ZeroDivisionError: division by zero\n", "")


def test_out_of_memory_the_interpreter_ends_as_without_us(python: Interpreter, jobs: Jobs) -> None:
    """What is left when the last megabyte is refused differs with the limit, so several are tried."""
    for offset in range(OFFSETS):
        code = f"""
            import resource
            limit = (400 << 20) + {offset} * 16384
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            held = []
            while True:
                held.append(bytearray(1 << 20))
            """
        done = jobs.run(python, code)
        assert done.status == 1, (offset, done.status)
        assert only_exception(done.folder).exceptions[0].type == "MemoryError"


def test_nothing_is_imported_for_an_exception_of_the_main_program(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import sys
        def hook(*told):
            print(sorted(set(sys.modules) - before))
        ended = sys.modules["ftforensics"]
        ended.uninstall()
        sys.excepthook = hook
        ended.install(helper="none")
        before = set(sys.modules)
        raise MemoryError
        """
    assert jobs.run(python, code).out == "[]\n"

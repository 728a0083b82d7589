"""CPython's own dumps: each interpreter that is here writes one, and the odd lines by hand."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions import Interpreter
from ftforensics.parsers.faulthandler_text import parse_faulthandler

PROGRAM = """
import faulthandler, threading, sys
def inner(): faulthandler.dump_traceback(all_threads=True)
def outer(): inner()
ready = threading.Event(); leave = threading.Event()
def waiter(): ready.set(); leave.wait()
thread = threading.Thread(target=waiter); thread.start(); ready.wait()
outer()
leave.set(); thread.join()
"""


def test_each_interpreters_dump(python: Interpreter) -> None:
    dump = subprocess.run([python.path, "-c", PROGRAM], capture_output=True, text=True, check=True).stderr
    threads = parse_faulthandler(dump)
    assert len(threads) == 2
    current = next(thread for thread in threads if thread.current)
    assert [frame.function for frame in current.frames] == ["inner", "outer", "<module>"]
    assert all(frame.file == "<string>" and frame.line for frame in current.frames)
    other = next(thread for thread in threads if not thread.current)
    assert "waiter" in [frame.function for frame in other.frames]
    assert other.ident != current.ident


def test_a_dump_of_one_thread() -> None:
    (thread,) = parse_faulthandler('Stack (most recent call first):\n  File "a.py", line 3 in f\n')
    assert thread.current and thread.ident is None and thread.frames[0].line == 3


def test_file_names_may_hold_anything() -> None:
    text = 'Stack (most recent call first):\n  File "a", line 1 in x", line 22 in f\n  File ???, line ??? in ???\n'
    (thread,) = parse_faulthandler(text)
    assert thread.frames[0].file == 'a", line 1 in x'
    assert (thread.frames[1].file, thread.frames[1].line, thread.frames[1].function) == (None, None, None)


@pytest.mark.parametrize("mark", ["  ...\n", "  <truncated rest of calls>\n", '  File "b.py", line 1'])
def test_a_stack_that_goes_on_says_so(mark: str) -> None:
    (thread,) = parse_faulthandler('Stack (most recent call first):\n  File "a.py", line 3 in f\n' + mark)
    assert thread.truncated and len(thread.frames) == 1


def test_remarks_and_names() -> None:
    text = (
        "Thread 0x00007f0000000700 [io worker] (most recent call first):\n  <no Python frame>\n\n"
        "Current thread 0x00007f0000000800 (most recent call first):\n  Garbage-collecting\n"
        '  File "a.py", line 3 in f\n\nExtension modules: numpy.core (total: 1)\n  File "not.py", line 1 in it\n'
    )
    first, second = parse_faulthandler(text)
    assert (first.name, first.notes, first.frames) == ("io worker", ["<no Python frame>"], [])
    assert second.current and second.notes == ["Garbage-collecting"] and len(second.frames) == 1


def test_the_hundredth_thread_ends_the_dump() -> None:
    text = 'Thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n...\n  File "b.py", line 3 in f\n'
    assert [len(thread.frames) for thread in parse_faulthandler(text)] == [1]


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    parse_faulthandler("Stack (most recent call first):\n" + text)
    parse_faulthandler(text)

"""What py-spy and pystack print, and how their refusals are recognised."""

from __future__ import annotations

import json

import pytest

from ftforensics.model.helper_report import HelperFrame
from ftforensics.parsers import pyspy_json, pystack_text

PYSTACK = """\
Traceback for thread 9221 (python) [] (most recent call last):
    (C) File "???", line 0, in _start (/usr/bin/python3.11)
    (C) File "Python/pythonrun.c", line 1626, in pyrun_file (inlined) (/usr/lib/libpython3.11.so.1.0)
    (Python) File "/work/train (2).py", line 6, in <module>
        outer(token="secret")
    (C) File "/usr/lib/libffi.so.8.1.2", line 0, in ??? (/usr/lib/libffi.so.8.1.2)
    (C) File "???", line 0, in c10::fail(int, char const*) (/v/torch/lib/libc10.so)

Traceback for thread 9222 (pt_worker) [Has the GIL] (most recent call last):
    (C) File "a.c", line 81, in __clone3 (/usr/lib/libc.so.6)
"""


def test_pystack() -> None:
    first, second = pystack_text.parse(PYSTACK)
    assert (first.tid, first.name) == (9221, "python")
    assert first.frames == [
        HelperFrame(function="c10::fail(int, char const*)", native=True, library="/v/torch/lib/libc10.so"),
        HelperFrame(native=True, library="/usr/lib/libffi.so.8.1.2"),
        HelperFrame(function="<module>", file="/work/train (2).py", line=6),
        HelperFrame(
            function="pyrun_file",
            file="Python/pythonrun.c",
            line=1626,
            native=True,
            library="/usr/lib/libpython3.11.so.1.0",
        ),
        HelperFrame(function="_start", native=True, library="/usr/bin/python3.11"),
    ]
    assert (second.tid, second.name, len(second.frames)) == (9222, "pt_worker", 1)


def test_pystack_source_lines_are_not_kept() -> None:
    assert "secret" not in repr(pystack_text.parse(PYSTACK))


def test_pystack_that_found_nothing() -> None:
    with pytest.raises(ValueError, match="no thread"):
        pystack_text.parse("usage: pystack\n")


def _frame(name: str, filename: str, module: str | None, line: int) -> dict[str, object]:
    return {
        "name": name, "filename": filename, "module": module, "short_filename": None, "line": line,
        "locals": None, "is_entry": True, "is_shim_entry": False,
    }  # fmt: skip


def test_pyspy() -> None:
    thread = {
        "pid": 1, "thread_id": 140553999582912, "thread_name": "worker", "os_thread_id": 9221, "active": False,
        "owns_gil": False, "process_info": None,
        "frames": [
            _frame("0x7fd54737ff7a", "/usr/lib/libffi.so.8.1.2", "/usr/lib/libffi.so.8.1.2", 0),
            _frame("PyCFuncPtr_call", "/src/_ctypes.c", "/usr/lib/_ctypes.so", 4201),
            _frame("outer", "/tmp/spin.py", None, 5),
        ],
    }  # fmt: skip
    (parsed,) = pyspy_json.parse(json.dumps([thread]).encode())
    assert (parsed.tid, parsed.name) == (9221, "worker")
    assert parsed.frames == [
        HelperFrame(native=True, library="/usr/lib/libffi.so.8.1.2"),
        HelperFrame(
            function="PyCFuncPtr_call", file="/src/_ctypes.c", line=4201, native=True, library="/usr/lib/_ctypes.so"
        ),
        HelperFrame(function="outer", file="/tmp/spin.py", line=5),
    ]


@pytest.mark.parametrize("text", [b"", b"{}", b"Process 1: python\n", b'[{"frames": [{}]}]', b"\xff\xfe"])
def test_what_is_not_pyspys(text: bytes) -> None:
    with pytest.raises(ValueError, match="py-spy"):
        pyspy_json.parse(text)


def test_refusals() -> None:
    assert pyspy_json.refused(b"Permission Denied: Try running again with elevated permissions by going 'sudo'\n")
    assert pyspy_json.refused(b"Error: Operation not permitted (os error 1)\n")
    assert not pyspy_json.refused(b"Error: Failed to find python version from target process\n")
    assert pystack_text.refused("\N{SKULL} Engine error: Operation not permitted".encode())
    assert not pystack_text.refused(b"Engine error: No such process")

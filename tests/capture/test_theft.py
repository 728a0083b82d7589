"""A library that takes the fault signals: noticed right after an import, within a second otherwise, and recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from conditions import ROOT, Interpreter

THIEF = r"""
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <signal.h>
static void thief_handler(int sig) { signal(sig, SIG_DFL); raise(sig); }
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "thief", 0, -1};
static PyObject *steal(PyObject *self, PyObject *unused) { signal(SIGSEGV, thief_handler); Py_RETURN_NONE; }
static PyMethodDef methods[] = {{"steal", steal, METH_NOARGS, 0}, {0}};
PyMODINIT_FUNC PyInit_thief(void)
{
    definition.m_methods = methods;
    steal(0, 0);
    return PyModule_Create(&definition);
}
"""

PROGRAM = """
import ctypes, sys, time
import ftforensics
from ftforensics import _native

def handler():
    action = ctypes.create_string_buffer(256)
    ctypes.CDLL(None).sigaction(11, None, action)
    return action.raw[:8]

ftforensics.install(dir=sys.argv[1], helper="none")
sys.path.insert(0, sys.argv[2])
ours = handler()
if sys.argv[3] == "import":
    _native.stop_watcher()  # so that nothing but the import can notice
    import thief
else:
    import thief
    thief.steal()
    start = time.monotonic()
    while handler() != ours and time.monotonic() < start + 10:
        time.sleep(0.005)
    print(time.monotonic() - start)
print(handler() == ours, flush=True)
ctypes.string_at(0)
"""


@pytest.fixture(scope="module")
def thief(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an extension module that takes SIGSEGV when it is imported."""
    import sysconfig

    folder = tmp_path_factory.mktemp("thief")
    (folder / "thief.c").write_text(THIEF)
    include = sysconfig.get_path("include")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", f"-I{include}", "-o", folder / "thief.abi3.so", folder / "thief.c"], check=True
    )
    return folder


def die(python: Interpreter, records: Path, thief: Path, way: str) -> tuple[list[str], dict[str, object]]:
    done = subprocess.run(
        [str(python.path), "-c", PROGRAM, str(records), str(thief), way],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGSEGV
    (path,) = records.glob("*.crash.json")
    (handler,) = [one for one in json.loads(path.read_text())["handlers"] if one["signal"] == "SIGSEGV"]
    return done.stdout.split(), handler


def test_noticed_right_after_the_import_that_did_it(python: Interpreter, tmp_path: Path, thief: Path) -> None:
    output, handler = die(python, tmp_path / "records", thief, "import")
    assert output == ["True"]
    assert handler["ours"]
    newest = handler["previous"][0]  # type: ignore[index]
    assert newest["library"].endswith("thief.abi3.so")
    assert newest["taken_back"] and newest["at"] > 0


def test_noticed_within_a_second_otherwise(python: Interpreter, tmp_path: Path, thief: Path) -> None:
    output, handler = die(python, tmp_path / "records", thief, "call")
    assert output[1] == "True"
    assert float(output[0]) < 1
    assert handler["previous"][0]["taken_back"]  # type: ignore[index]

"""What a person is told to do: specific to who is blamed and to what went wrong."""

from __future__ import annotations

import pytest

from ftforensics.causes.advice import advice, heap_check
from ftforensics.model.basics import Address
from ftforensics.model.case import Crash, PythonFrame
from ftforensics.model.crash import CrashRecord, Job, Library, Module
from ftforensics.model.diagnosis import Frame
from ftforensics.model.mechanism import Mechanism, MechanismReading

EXTENSION = "/v/site-packages/fast/_ext.cpython-311-x86_64-linux-gnu.so"
EVAL = Frame(function="_PyEval_EvalFrameDefault", library="/usr/lib/libpython3.11.so.1.0")
CTYPES = Frame(function="_ctypes_callproc", library="/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x.so")
STRLEN = Frame(function="strlen", library="/usr/lib/libc.so.6")
LINE = PythonFrame("/work/b.py", 8, "crash")
FAST = Library(EXTENSION, "extension", package="fast", version="1.2", how="record")
CUDA = Module("/usr/lib/libcuda.so.1", Address(0x7F0000000000))


def texts(
    *frames: Frame,
    word: Mechanism = Mechanism.WILD_READ,
    address: int = 0x123456789000,
    libraries: tuple[Library, ...] = (),
    modules: tuple[Module, ...] = (),
) -> str:
    record = CrashRecord(libraries=list(libraries), modules=list(modules), job=Job(glibc="2.31"))
    crash = Crash(record, MechanismReading(word, Address(address)), [*frames, EVAL], [LINE])
    return "\n".join(f"{'TEST ' if r.settles else ''}{r.text} | {r.command}" for r in advice(crash))


def test_a_pointer_through_ctypes_is_the_callers() -> None:
    assert "Check the pointers that b.py:8 in crash() passes through ctypes: one of them is null" in texts(
        STRLEN, CTYPES, word=Mechanism.NULL_READ, address=0
    )
    assert "cut to 32 bits" in texts(STRLEN, CTYPES, address=0x9A7B5E30)
    assert "argtypes and restype" in texts(STRLEN, CTYPES)


def test_an_extension_is_named_with_package_and_version() -> None:
    told = texts(Frame(function="f", library=EXTENSION), libraries=(FAST,), word=Mechanism.NULL_READ)
    assert "Reinstall or rebuild fast 1.2" in told
    assert "pip install --force-reinstall --no-deps fast==1.2" in told
    told = texts(Frame(function="f", library=EXTENSION), word=Mechanism.NULL_READ)
    assert "source of _ext.so" in told and "pip" not in told


def test_a_kernel_of_torch_is_told_to_look_at_its_tensors_first() -> None:
    path = "/v/site-packages/torch/lib/libtorch_cpu.so"
    torch = Library(path, "libtorch_cpu", package="torch", version="2.13.0", how="record")
    frame = Frame(function="at::native::add_kernel(at::T&)", library=path)
    assert texts(frame, libraries=(torch,)).startswith("Check the tensors that at::native::add_kernel got (b.py:8 in")


@pytest.mark.parametrize(("modules", "wanted"), [((CUDA,), True), ((), False)])
def test_launch_blocking_only_where_cuda_is_loaded(modules: tuple[Module, ...], wanted: bool) -> None:
    assert ("CUDA_LAUNCH_BLOCKING" in texts(Frame(function="f", library=EXTENSION), modules=modules)) is wanted


def test_there_is_one_test_at_most() -> None:
    assert texts(Frame(function="f", library=EXTENSION)).count("TEST ") == 1
    assert texts(Frame(function="f", library=EXTENSION), modules=(CUDA,)).count("TEST ") == 1


def test_a_broken_interpreter_gets_its_own_checks() -> None:
    assert "PYTHONMALLOC=debug" in texts()


@pytest.mark.parametrize(("glibc", "preloaded"), [("2.31", False), ("2.34", True), ("2.36", True), (None, False)])
def test_malloc_check_needs_a_library_since_glibc_2_34(glibc: str | None, preloaded: bool) -> None:
    command = heap_check(Crash(CrashRecord(job=Job(glibc=glibc)))).command or ""
    assert "MALLOC_CHECK_=3" in command
    assert ("LD_PRELOAD=libc_malloc_debug.so.0" in command) is preloaded

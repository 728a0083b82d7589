"""Who is blamed for a stack: a table of stacks as they were recorded, and the answer that an engineer gives."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.causes.blame import blame, blame_text, is_plumbing
from ftforensics.model.basics import Address
from ftforensics.model.case import Crash, PythonFrame
from ftforensics.model.crash import CrashRecord, Registers
from ftforensics.model.diagnosis import Frame
from ftforensics.model.mechanism import MechanismReading

LIBRARIES = {
    "c": "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "ld": "/usr/lib64/ld-linux-x86-64.so.2",
    "ffi": "/usr/lib/libffi.so.8.1.2",
    "ctypes": "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so",
    "cffi": "/v/site-packages/_cffi_backend.cpython-311-x86_64-linux-gnu.so",
    "py": "/usr/lib/libpython3.11.so.1.0",
    "exe": "/usr/bin/python3.11",
    "std": "/usr/lib/libstdc++.so.6.0.30",
    "ext": "/v/site-packages/fast/_ext.cpython-311-x86_64-linux-gnu.so",
    "x": "/opt/libx.so",
    "torch": "/v/site-packages/torch/lib/libtorch_cpu.so",
    "tpy": "/v/site-packages/torch/lib/libtorch_python.so",
}
PYTHON = [
    PythonFrame("/usr/lib/python3.11/ctypes/__init__.py", 519, "string_at"),
    PythonFrame("/work/b.py", 8, "crash"),
]
CTYPES = ["ffi:", "ffi:ffi_call", "ctypes:_ctypes_callproc", "py:_PyObject_MakeTpCall", "py:_PyEval_EvalFrameDefault"]
TORCH_CALL = ["torch:at::_ops::add_Tensor::call(at::Tensor const&)", "tpy:torch::autograd::THPVariable_add(_object*)",
              "py:PyNumber_Add", "py:_PyEval_EvalFrameDefault"]  # fmt: skip


def crash(*stack: str, python: list[PythonFrame] = PYTHON, access: str = "read", trust: str = "cfi") -> Crash:
    """Frames as "library:function", innermost first."""
    frames = []
    for entry in stack:
        library, _, function = entry.partition(":")
        frames.append(Frame(function=function or None, library=LIBRARIES.get(library), trust=trust))
    return Crash(CrashRecord(), MechanismReading(access=access), frames, python)


@pytest.mark.parametrize(
    ("stack", "text"),
    [
        (["c:__strlen_evex", "ctypes:string_at", *CTYPES], "a ctypes call at b.py:8 in crash()"),
        (["c:__memcpy_avx512_unaligned_erms", *CTYPES], "a ctypes call at b.py:8 in crash()"),
        (["c:__strlen_evex", "cffi:cdata_call", "py:_PyEval_EvalFrameDefault"], "a cffi call at b.py:8 in crash()"),
        (["x:step_kernel", *CTYPES], "step_kernel (libx.so)"),
        (["c:__memmove_avx", "x:void fill<int>(int*)", "py:_PyEval_EvalFrameDefault"], "fill (libx.so)"),
        (["c:_int_malloc", "c:malloc", "std:operator new(unsigned long)", "ext:parse(char*)", "py:_PyEval_Vector"],
         "parse (_ext.so)"),
        (["c:raise", "c:abort", "std:std::terminate()", "std:__cxa_throw", "x:watch()"], "watch (libx.so)"),
        # The interpreter was handed something bad by an extension, or broke by itself.
        (["py:PyObject_GetAttr", "ext:lookup", "py:_PyEval_EvalFrameDefault"], "lookup (_ext.so)"),
        (["py:_PyEval_EvalFrameDefault", "py:PyEval_EvalCode"], "the interpreter at b.py:8 in crash()"),
        (["exe:dict_dealloc", "exe:_PyEval_EvalFrameDefault.cold"], "the interpreter at b.py:8 in crash()"),
        # What called the Python code in which it died is not to blame.
        (["c:__strlen_evex", *CTYPES, "x:callback_runner", "py:_PyEval_EvalFrameDefault"],
         "a ctypes call at b.py:8 in crash()"),
        # A library that crashes while it is loaded.
        (["ext:init_table", "ld:call_init", "ld:_dl_init", "py:_PyEval_EvalFrameDefault"], "init_table (_ext.so)"),
        # A linked-in allocator under its own name.
        (["x:free", "x:Pool::~Pool()", "py:_PyEval_EvalFrameDefault"], "Pool::~Pool (libx.so)"),
        # Kernels of torch, from below and from above.
        (["torch:void c10::function_ref<void (char**)>::callback_fn<at::native::AVX2::VectorizedLoop2d<x> >(long)",
          "torch:at::TensorIteratorBase::for_each(long) const",
          "torch:at::native::(anonymous namespace)::add_kernel(at::T&)::{lambda()#1}::operator()() const",
          "torch:at::native::(anonymous namespace)::add_kernel(at::T&)", *TORCH_CALL],
         "at::native::add_kernel (libtorch_cpu.so)"),
        (["torch:at::native::index_select_out_cpu_(at::Tensor const&)", *TORCH_CALL],
         "at::native::index_select_out_cpu_ (libtorch_cpu.so)"),
        (TORCH_CALL, "at::_ops::add_Tensor::call (libtorch_cpu.so)"),
        (["torch:at::_ops::add_Tensor::call(at::Tensor)", "ext:fused(at::Tensor)", "py:_PyEval_EvalFrameDefault"],
         "at::_ops::add_Tensor::call (libtorch_cpu.so)"),
        # torch gave up because of what it was called with: the caller of the check, not the check.
        (["c:raise", "c:abort", "std:__cxa_throw", "torch:c10::detail::torchCheckFail(char const*)",
          "torch:at::native::cat(at::TensorList)", *TORCH_CALL], "at::native::cat (libtorch_cpu.so)"),
        ([], "b.py:8 in crash()"),
    ],
)  # fmt: skip
def test_the_table(stack: list[str], text: str) -> None:
    assert blame_text(crash(*stack)) == text


def test_a_call_into_nowhere_blames_the_caller() -> None:
    assert blame_text(crash("x:table", "ext:dispatch", access="exec")) == "dispatch (_ext.so)"
    assert blame_text(crash(":", "ext:dispatch", access="exec")) == "dispatch (_ext.so)"


def test_a_call_that_the_processor_refused_is_the_callers_own() -> None:
    """Through a value that is no address the call never arrives: the program counter is still at the call."""
    refused = msgspec.structs.replace(
        crash("x:table", "ext:dispatch", access="exec"), record=CrashRecord(registers=Registers(pc=Address(0x7F00)))
    )
    assert blame_text(refused) == "table (libx.so)"


def test_only_frames_that_are_no_guesses_accuse_the_interpreter() -> None:
    guessed = crash("py:_Py_dict_lookup", "py:_PyEval_EvalFrameDefault", trust="scan")
    assert blame_text(guessed) == "native code below b.py:8 in crash()"


def test_a_thread_of_plumbing_alone_names_the_top_frame() -> None:
    assert blame_text(crash("c:__memcpy", "c:start_thread", python=[])) == "__memcpy (libc.so.6)"
    assert blame_text(crash(python=[])) is None


def test_a_guessed_frame_accuses_nobody() -> None:
    assert blame(crash("x:f", "ext:g", trust="scan")).frame is None


def test_the_users_line_stands_for_library_code_unless_that_passed_the_pointer() -> None:
    python = [
        PythonFrame("/v/site-packages/bits/functional.py", 3, "quantize"),
        PythonFrame("/work/train.py", 9, "step"),
    ]
    through = blame(crash("c:strlen", *CTYPES, python=python))
    assert (through.border, through.python) == ("ctypes", python[0])
    assert blame(crash("ext:f", "py:_PyEval_EvalFrameDefault", python=python)).python == python[1]


@pytest.mark.parametrize(
    "library", ["libc.so.6", "libc-2.31.so", "ld-2.17.so", "libpthread.so.0", "libffi-9c61262e.so.8.1.0", "python3.12",
                "libstdc++.so.6", "libjemalloc.so.2"]
)  # fmt: skip
def test_plumbing(library: str) -> None:
    assert is_plumbing(Frame(library=f"/x/{library}"))


@pytest.mark.parametrize("library", ["libcudart.so.12", "libcrypto.so.3", "libcaffe2.so", "python_hash.so"])
def test_somebodys_own_code(library: str) -> None:
    assert not is_plumbing(Frame(library=f"/x/{library}"))

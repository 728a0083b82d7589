"""Which frame carries the blame.

Few crashes happen in the code that is at fault: `strlen` was handed a bad pointer, `abort` was called by somebody. So
the frames of C library, loader, foreign-function interface and interpreter are passed over, down to the first one of
somebody's own code. Where none is left before the interpreter runs Python again, it is the line of Python.
"""

from __future__ import annotations

import re

import msgspec

from ftforensics.model.case import Crash, PythonFrame
from ftforensics.model.diagnosis import Frame
from ftforensics.parsers.cxx_name import short_name

# Libraries that only carry out what they are told: they crash for their callers' mistakes. By file name.
_PLUMBING_LIBRARIES = re.compile(
    r"""lib(c|pthread|m|dl|rt|util|resolv)([.-]2\.\d+)?\.so   # glibc, from 2.17 on
      | ld-(linux|2\.)
      | \[vdso\]
      | libffi([.-]|$)
      | lib(stdc\+\+|gcc_s|c\+\+|c\+\+abi|unwind)([.-]|$)
      | lib(jemalloc|tcmalloc|mimalloc|asan|tsan|ubsan)([._-]|$)
      | libpython\d
      | python(\d(\.\d+)?)?$
      | _ctypes\. | _cffi_backend\.
    """,
    re.VERBOSE,
)
_INTERPRETER = re.compile(r"libpython\d|python(\d(\.\d+)?)?$")
_BORDERS = ((re.compile(r"_ctypes\."), "ctypes"), (re.compile(r"_cffi_backend\."), "cffi"))
# Here Python code runs again: whatever stands further out is the caller of that code.
EVAL = re.compile(r"_?PyEval_(EvalFrame|Vector)")
# Memory and C++ support that is linked into a library or a program itself.
_PLUMBING_NAMES = re.compile(
    r"(__)?(libc_)?(malloc|free|cfree|calloc|realloc|abort|raise|memcpy|memmove|memset|memcmp|strlen|strcmp|strcpy)"
    r"(_chk)?$|operator (new|delete)(\[\])?$|std::terminate$|__cxa_|__gxx_|_Unwind_|__stack_chk_fail$|__assert_fail"
    r"|(__)?pthread_kill|__GI_|gsignal$|__libc_message|malloc_printerr$|munmap_chunk$|_int_(free|malloc|realloc|memalign)"
    r"|__fortify_fail|__chk_fail$|std::__(glibcxx_assert_fail|replacement_assert|throw_\w+)$|__restore_rt$|__ubsan_|__asan_"
)
_TORCH_LIBRARIES = re.compile(r"lib(torch|c10)(_\w+)?\.so")
# The way from torch's Python call to a kernel, and the loops that a kernel is handed to. A kernel is at::native::*.
_TORCH_DISPATCH = re.compile(
    r"c10::(function_ref|impl|Dispatcher|KernelFunction|BoxedKernel|detail|ThreadPool|intrusive_ptr)\b"
    r"|at::(_ops|redispatch|internal|parallel_for|TensorIteratorBase|TensorIterator|vec|wrapper_|detail)"
    r"|at::native::(DispatchStub|(AVX2|AVX512|DEFAULT|CPU_CAPABILITY)::(VectorizedLoop2d|vectorized_loop|basic_loop))"
    r"|torch::(autograd|ADInplaceOrView|Trace|jit::invoke|PythonArgParser)\b|THPVariable_|std::|__gnu_"
)


class Blame(msgspec.Struct, frozen=True):
    """index, frame: the native frame; both None when only plumbing is left. python: the line of Python that called
    into it, None for a thread without Python; border: how it called, "ctypes" or "cffi", where that is known."""

    index: int | None = None
    frame: Frame | None = None
    python: PythonFrame | None = None
    border: str | None = None


def blame(crash: Crash) -> Blame:
    index = _native(crash)
    border = _border(crash, 0 if index is None else index)
    frame = crash.native[index] if index is not None else None
    # Who calls through ctypes passes bare pointers and answers for them; else the user's own line says more.
    return Blame(index, frame, calling_line(crash) if border or frame is None else own_line(crash), border)


def _native(crash: Crash) -> int | None:
    dispatch: int | None = None
    for index, frame in enumerate(crash.native):
        # The target of a wild call is where it went, not who sent it there. A guessed frame accuses nobody.
        if frame.library is None or (index == 0 and _arrived(crash)) or frame.trust == "scan":
            continue
        if runs_python(frame):
            break
        if is_plumbing(frame):
            continue
        torch = _TORCH_LIBRARIES.match(file_name(frame)) is not None
        if torch and _TORCH_DISPATCH.match(short_name(frame.function or "")):
            dispatch = index if dispatch is None else dispatch
            continue
        # An extension that called torch: what was handed over is its matter only when no torch frame stands before.
        return index if torch or dispatch is None else dispatch
    return dispatch


def _arrived(crash: Crash) -> bool:
    """Did a wild call reach its target? Some targets the processor refuses before that, and stays at the call."""
    pc = crash.record.registers.pc if crash.record.registers else None
    return crash.reading.access == "exec" and (pc is None or pc == crash.reading.address)


def in_interpreter(crash: Crash) -> bool:
    """Did the interpreter's own code fail, by frames that are no guesses?"""
    for frame in crash.native:
        if frame.trust != "scan" and frame.library is not None and _INTERPRETER.match(file_name(frame)):
            return True
    return False


def runs_python(frame: Frame) -> bool:
    return EVAL.match(frame.function or "") is not None


def is_plumbing(frame: Frame) -> bool:
    """Does this frame only do what its caller asked for?"""
    return bool(_PLUMBING_LIBRARIES.match(file_name(frame)) or _PLUMBING_NAMES.match(short_name(frame.function or "")))


def file_name(frame: Frame) -> str:
    return (frame.library or "").rpartition("/")[2]


def _border(crash: Crash, start: int) -> str | None:
    for frame in crash.native[start:]:
        if runs_python(frame):
            return None
        for library, name in _BORDERS:
            if library.match(file_name(frame)):
                return name
    return None


def calling_line(crash: Crash) -> PythonFrame | None:
    """The innermost line of Python that is neither ctypes' own nor the import system's."""
    own = (
        frame
        for frame in crash.python
        if "/ctypes/" not in (frame.file or "") and not (frame.file or "").startswith("<frozen ")
    )
    return next(own, crash.python[0] if crash.python else None)


def own_line(crash: Crash) -> PythonFrame | None:
    """The innermost line outside installed packages and the standard library, else the innermost."""
    own = (frame for frame in crash.python if not is_library_code(frame.file or ""))
    return next(own, calling_line(crash))


def is_library_code(file: str) -> bool:
    return any(part in file for part in ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "))


def line_text(frame: PythonFrame) -> str:
    """ "b.py:8 in crash()"."""
    place = (frame.file or "?").rpartition("/")[2] + (f":{frame.line}" if frame.line is not None else "")
    function = frame.function or "?"
    return f"{place} in {function}()" if function.isidentifier() else f"{place} in {function}"


def library_text(frame: Frame) -> str:
    """The file's name, without the tag that says for which Python it was built."""
    return re.sub(r"\.(cpython-[^.]*|abi3)(?=\.so)", "", file_name(frame))


def frame_name(frame: Frame) -> str:
    """ "step_kernel (libext.so)" or "libext.so +0x1b2f2"."""
    if frame.function:
        return f"{short_name(frame.function)} ({library_text(frame)})"
    return f"{library_text(frame)} +{frame.offset or 0:#x}"


def blame_text(crash: Crash) -> str | None:
    """Who to name in a sentence: "step_kernel (libext.so)", "a ctypes call at b.py:8 in crash()"; None: nobody."""
    blamed = blame(crash)
    if blamed.frame is not None:
        return frame_name(blamed.frame)
    if blamed.python is not None:
        where = line_text(blamed.python)
        if blamed.border is not None:
            return f"a {blamed.border} call at {where}"
        if in_interpreter(crash):
            return f"the interpreter at {where}"
        return f"native code below {where}" if crash.native else where
    top = next((frame for frame in crash.native if frame.library is not None), None)
    return frame_name(top) if top is not None else None

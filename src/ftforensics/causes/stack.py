"""Questions that several causes ask of a stack."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash, PythonFrame
from ftforensics.model.diagnosis import Frame

# The C++ runtime giving up on an exception.
TERMINATE = ("std::terminate", "__cxxabiv1::__terminate", "__gnu_cxx::__verbose_terminate_handler", "_ZSt9terminatev")


def frame_text(frame: Frame) -> str:
    place = frame.library.rpartition("/")[2] if frame.library else "no known library"
    offset = f" +{frame.offset:#x}" if frame.offset is not None else ""
    return f"{frame.function} in {place}{offset}" if frame.function else f"{place}{offset}"


def find_function(crash: Crash, names: Collection[str], depth: int = 64) -> Cite | None:
    """The innermost native frame, within `depth`, whose function (without its parameters) is one of `names`."""
    for index, frame in enumerate(crash.native[:depth]):
        if frame.trust != "scan" and plain_name(frame) in names:
            return Cite("crash", f"native.frames[{index}]", frame_text(frame))
    return None


def plain_name(frame: Frame) -> str:
    """The function without parameters and symbol version: "abort" of "abort@@GLIBC_2.2.5", "f" of "f(int)"."""
    return (frame.function or "").partition("(")[0].partition("@")[0]


# Between the code that gives up and the kernel: names of glibc, libstdc++ and libgcc, not of the culprit.
_ABORT_PATH = (
    "__pthread_kill_implementation", "__pthread_kill_internal", "pthread_kill", "__pthread_kill", "raise", "gsignal",
    "__GI_raise", "__GI_abort", "abort", "__libc_message", "__libc_message_impl", "__libc_message_wo_heap",
    "malloc_printerr", "__assert_fail_base", "__assert_fail_base.cold", "__assert_fail", "__GI___assert_fail",
    "__fortify_fail", "__stack_chk_fail", "__chk_fail", "std::terminate", "__cxa_throw", "__cxa_rethrow",
    "__gxx_personality_v0", "__cxa_call_terminate", "__gnu_cxx::__verbose_terminate_handler",
    "__cxxabiv1::__terminate", "_Unwind_RaiseException", "_Unwind_Resume", "_int_free", "free", "cfree", "__libc_free",
    "realloc", "malloc", "_int_malloc", "__libc_malloc", "__libc_realloc", "_int_realloc", "munmap_chunk",
)  # fmt: skip


def site(crash: Crash) -> tuple[int, Frame] | None:
    """The frame to name in a sentence: where it died, or for an abort and a call into nowhere, who brought it there."""
    aborted = crash.record.signal is not None and crash.record.signal.name == "SIGABRT"
    for index, frame in enumerate(crash.native):
        if frame.library is None or (index == 0 and crash.reading.access == "exec"):
            continue
        if aborted and (plain_name(frame) in _ABORT_PATH or "libstdc++" in frame.library):
            continue
        return index, frame
    return (0, crash.native[0]) if crash.native else None


def site_text(crash: Crash) -> str | None:
    """ "step_kernel (libext.so)", "libext.so +0x1b2f2", or None when no frame has a library."""
    found = site(crash)
    if found is None or found[1].library is None:
        return None
    frame = found[1]
    library = (frame.library or "").rpartition("/")[2]
    return f"{plain_name(frame)} ({library})" if frame.function else f"{library} +{frame.offset or 0:#x}"


def top_frame(crash: Crash) -> Cite | None:
    found = site(crash)
    if found is None:
        return None
    index, frame = found
    verb = "died in " if index == 0 else "came there from "
    return Cite("crash", f"native.frames[{index}]", verb + frame_text(frame))


def top_python(crash: Crash) -> Cite | None:
    if not crash.python:
        return None
    return Cite("crash", "python", python_text(crash.python[0]))


def python_text(frame: PythonFrame) -> str:
    return f"{frame.file or '?'}:{frame.line if frame.line is not None else '?'} in {frame.function or '?'}"


def longest_repeat(names: Sequence[str]) -> tuple[str, int] | None:
    """The name that is most often on the stack, and how often, when recursion is plain.

    Plain: 20 times or more, or more than half of at least 20 frames (two functions that call each other).
    """
    if len(names) < 20:
        return None
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    name, count = max(counts.items(), key=lambda item: item[1])
    return (name, count) if count * 2 > len(names) or count >= 20 else None

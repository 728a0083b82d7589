"""Questions that several causes ask of a stack."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ftforensics.causes.blame import blame
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash, PythonFrame
from ftforensics.model.diagnosis import Frame
from ftforensics.model.mechanism import Mechanism
from ftforensics.parsers.cxx_name import short_name

# The C++ runtime giving up on an exception.
TERMINATE = ("std::terminate", "__cxxabiv1::__terminate", "__gnu_cxx::__verbose_terminate_handler", "_ZSt9terminatev")

# The end of a thread that runs the destructors of its frames: pthread_exit(3), pthread_cancel(3).
FORCED_UNWIND = ("_Unwind_ForcedUnwind", "__pthread_unwind", "__GI___pthread_unwind", "pthread_exit")

# CPython's functions that print "Fatal Python error" and abort (Python/pylifecycle.c, Python/pystate.c).
PYTHON_FATAL = (
    "Py_FatalError", "_Py_FatalErrorFunc", "_Py_FatalErrorFormat", "fatal_error", "fatal_error_exit",
    "_Py_FatalError_TstateNULL", "_Py_FatalRefcountErrorFunc",
)  # fmt: skip
# What the C++ runtime was doing when it called std::terminate for an exception that nobody catches.
THROW = (
    "__cxa_throw", "__cxa_rethrow", "_Unwind_RaiseException", "_Unwind_Resume", "_Unwind_Resume_or_Rethrow",
    "__cxa_call_terminate", "__gxx_personality_v0", "std::rethrow_exception",
)  # fmt: skip


def frame_text(frame: Frame) -> str:
    place = frame.library.rpartition("/")[2] if frame.library else "no known library"
    offset = f" +{frame.offset:#x}" if frame.offset is not None else ""
    return f"{short_name(frame.function)} in {place}{offset}" if frame.function else f"{place}{offset}"


def find_function(crash: Crash, names: Collection[str], depth: int = 64) -> Cite | None:
    """The innermost native frame, within `depth`, whose function (without its parameters) is one of `names`."""
    for index, frame in enumerate(crash.native[:depth]):
        if frame.trust != "scan" and plain_name(frame) in names:
            return Cite("crash", f"native.frames[{index}]", frame_text(frame))
    return None


def plain_name(frame: Frame) -> str:
    """The function without parameters, template arguments and symbol version."""
    return short_name(frame.function or "")


def places(crash: Crash) -> list[Cite]:
    """Where it died, who is to blame where that is another frame, and the line of Python."""
    cites = []
    if crash.native:
        code = crash.record.signal.code if crash.record.signal else None
        raised = code is not None and code <= 0
        sent = crash.reading.mechanism in (Mechanism.SENT_BY_PROCESS, Mechanism.KILLED)
        verb = "was in" if sent else "raised in" if raised else "died in"
        verb = "the stack holds" if crash.native[0].trust == "scan" else verb
        cites.append(Cite("crash", "native.frames[0]", f"{verb} {frame_text(crash.native[0])}"))
    blamed = blame(crash)
    if blamed.frame is not None and blamed.index:
        cites.append(Cite("crash", f"native.frames[{blamed.index}]", f"called by {frame_text(blamed.frame)}"))
    if blamed.python is not None:
        how = f", by {blamed.border}" if blamed.border else ""
        cites.append(Cite("crash", "python", python_text(blamed.python) + how))
    return cites


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

"""SIGABRT that the process raised itself: which part of it gave up."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ftforensics.causes.stack import TERMINATE, THROW, frame_text
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Frame
from ftforensics.model.mechanism import Mechanism, MechanismReading
from ftforensics.parsers.abort_text import AbortKind, abort_kind
from ftforensics.parsers.cxx_name import short_name
from ftforensics.parsers.exception_text import exception_type

_HEAP = ("malloc_printerr", "__libc_message_wo_heap")
# The last two are libstdc++'s, under -D_GLIBCXX_ASSERTIONS (from GCC 12 on in the library, before it inlined).
_ASSERT = (
    "__assert_fail", "__assert_fail_base", "__assert_perror_fail", "std::__glibcxx_assert_fail",
    "std::__replacement_assert",
)  # fmt: skip
# Distributions strip the C++ runtime: between abort() and the throw its own frames often have no name.
_CXX_RUNTIME = re.compile(r"lib(stdc\+\+|gcc_s|c\+\+|c\+\+abi|unwind)[.-]")
_DEPTH = 16  # abort() is called at most a few frames below its reason


def read_abort(record: CrashRecord, frames: Sequence[Frame]) -> MechanismReading:
    supports = []
    if record.signal is not None:
        supports.append(
            Cite(
                "crash",
                "signal",
                f"SIGABRT, {record.signal.code_name or record.signal.code}, raised by the process itself",
            )
        )
    message = record.abort_message.text if record.abort_message else None
    exception = record.cxx_exception
    if message:
        supports.append(Cite("crash", "abort_message", message.strip()[:400]))
        kind = abort_kind(message)
        if kind is AbortKind.HEAP:
            return MechanismReading(Mechanism.ABORT_HEAP, supports=tuple(supports))
        if kind is AbortKind.ASSERT:
            return MechanismReading(Mechanism.ABORT_ASSERT, supports=tuple(supports))
    for names, word in ((_HEAP, Mechanism.ABORT_HEAP), (_ASSERT, Mechanism.ABORT_ASSERT)):
        found = _frame(frames, names)
        if found is not None:
            return MechanismReading(word, supports=(*supports, found))
    end = _runtime_end(frames)
    supports += end.cites
    if exception is not None and exception.type:
        text = (
            f"{exception_type(exception.type)}: {exception.what}" if exception.what else exception_type(exception.type)
        )
        supports.append(Cite("crash", "cxx_exception", text[:400]))
    at_hand = exception is not None and exception.type is not None
    # std::terminate alone shows no exception: a std::thread that nobody joined ends there too. And an exception is at
    # hand in a handler that calls abort() for a reason of its own.
    if end.thrown or (at_hand and (end.terminate or (not end.called_directly and not message))):
        return MechanismReading(Mechanism.ABORT_CXX_EXCEPTION, supports=tuple(supports))
    unknown = (
        ()
        if message
        else (Gap("stderr", "why it gave up: glibc kept no message, so only the job's own output may tell"),)
    )
    return MechanismReading(Mechanism.ABORT_OTHER, supports=tuple(supports), unknown=unknown)


class _RuntimeEnd(msgspec.Struct, frozen=True):
    """How the C++ runtime came to abort(). terminate, thrown: std::terminate, a throw is on the stack; called_directly:
    abort() was called by something else than that runtime; cites: the frames that show it."""

    terminate: bool = False
    thrown: bool = False
    called_directly: bool = False
    cites: tuple[Cite, ...] = ()


def _runtime_end(frames: Sequence[Frame]) -> _RuntimeEnd:
    names = [short_name(frame.function or "") for frame in frames[:_DEPTH]]
    terminate = next((index for index, name in enumerate(names) if name in TERMINATE), None)
    start = terminate if terminate is not None else names.index("abort") if "abort" in names else None
    if start is None:
        return _RuntimeEnd()
    cites = [_cite(start, frames[start])] if terminate is not None else []
    directly = False
    for index, frame in enumerate(frames[start + 1 : start + _DEPTH], start + 1):
        name = short_name(frame.function or "")
        if name in THROW:
            return _RuntimeEnd(terminate is not None, True, False, (*cites, _cite(index, frame)))
        if name not in TERMINATE and not _CXX_RUNTIME.match((frame.library or "").rpartition("/")[2]):
            directly = terminate is None and index == start + 1
            break
    return _RuntimeEnd(terminate is not None, False, directly, tuple(cites))


def _frame(frames: Sequence[Frame], names: Sequence[str]) -> Cite | None:
    for index, frame in enumerate(frames[:_DEPTH]):
        if short_name(frame.function or "") in names:
            return _cite(index, frame)
    return None


def _cite(index: int, frame: Frame) -> Cite:
    return Cite("crash", f"native.frames[{index}]", frame_text(frame))

"""SIGABRT that the process raised itself: which part of it gave up."""

from __future__ import annotations

from collections.abc import Sequence

from ftforensics.causes.stack import TERMINATE
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Frame
from ftforensics.model.mechanism import Mechanism, MechanismReading
from ftforensics.parsers.abort_text import AbortKind, abort_kind
from ftforensics.parsers.exception_text import exception_type

_HEAP = ("malloc_printerr", "__libc_message_wo_heap")
_ASSERT = ("__assert_fail", "__assert_fail_base", "__assert_perror_fail")
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
    terminate = _frame(frames, TERMINATE)
    if terminate is not None:
        supports.append(terminate)
    if exception is not None and exception.type:
        text = (
            f"{exception_type(exception.type)}: {exception.what}" if exception.what else exception_type(exception.type)
        )
        supports.append(Cite("crash", "cxx_exception", text[:400]))
    if terminate is not None or (exception is not None and exception.type and not message):
        return MechanismReading(Mechanism.ABORT_CXX_EXCEPTION, supports=tuple(supports))
    for names, word in ((_HEAP, Mechanism.ABORT_HEAP), (_ASSERT, Mechanism.ABORT_ASSERT)):
        found = _frame(frames, names)
        if found is not None:
            return MechanismReading(word, supports=(*supports, found))
    unknown = (
        ()
        if message
        else (Gap("stderr", "why it gave up: glibc kept no message, so only the job's own output may tell"),)
    )
    return MechanismReading(Mechanism.ABORT_OTHER, supports=tuple(supports), unknown=unknown)


def _frame(frames: Sequence[Frame], names: Sequence[str]) -> Cite | None:
    for index, frame in enumerate(frames[:_DEPTH]):
        function = (frame.function or "").partition("(")[0]
        if function in names:
            return Cite(
                "crash", f"native.frames[{index}]", f"{frame.function} in {frame.library or 'an unknown library'}"
            )
    return None

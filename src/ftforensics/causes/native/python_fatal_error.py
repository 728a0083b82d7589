"""Python gave up with a fatal error.

## What it means

The interpreter found itself in a state that it cannot go on from, printed "Fatal Python error: ..." with the reason to
stderr, and called `abort()`. Nearly always native code broke one of its rules: it called into Python without holding
the GIL, released an object too often, or wrote over an object.

## How it is told apart

SIGABRT raised by the process itself, with the interpreter's function for fatal errors on the stack: likely. It is not
proven: the reason itself is only on stderr, and an embedding program may call that function for reasons of its own.
Without a crash record it is likely when SIGABRT ended the process and that line stands in its output. `faulthandler`
prints "Fatal Python error: Segmentation fault" and the like for plain signals; those are no fatal error of Python's.

CPython 3.12 and 3.13 may die of SIGSEGV instead: on a thread without the GIL the same function takes `faulthandler`
down first, which frees memory as only a thread with the GIL may. That happens where `faulthandler` was used before, by
`faulthandler.enable()` or by ftforensics.

## What to do

1. Read the line "Fatal Python error: ..." on stderr.
2. Look at the extension that stands below the interpreter's frames.
3. Run once with `PYTHONMALLOC=debug python -X dev`: damaged objects are found earlier.

## Seen in the field

- "PyThreadState_Get: the function must be called with the GIL held" from a C++ thread that touches a tensor's Python
  object.
- "deallocating None": an extension that forgets Py_INCREF(Py_None).
- "Cannot recover from stack overflow" under a raised recursion limit, before Python 3.12.

## References

- Python/C API, `Py_FatalError`; Python documentation, "Python Development Mode"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.blame import blame, frame_name, line_text, runs_python
from ftforensics.causes.ending import abort_texts, line_cite
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import PYTHON_FATAL, frame_text, places, plain_name
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism

KIND = Kind.OWN_FAULT
# What faulthandler prints behind the same words, for a signal (Modules/faulthandler.c).
_SIGNALS = ("Segmentation fault", "Aborted", "Bus error", "Floating", "Illegal instruction")
# Who calls for a fatal error tells which one it is (Python/ceval_gil.c, Objects/object.c, Python/pystate.c).
_REASONS = {
    "_Py_FatalError_TstateNULL": "Python was called without holding the GIL",
    "PyThreadState_Get": "Python was called without holding the GIL",
    "PyGILState_Release": "the GIL was released by a thread that did not hold it",
    "_Py_NegativeRefcount": "an object was released more often than it was taken",
    "_Py_FatalRefcountErrorFunc": "an object that lives for ever was released",
    "none_dealloc": "None was released more often than it was taken",
    "_Py_CheckRecursiveCall": "the recursion limit was hit again while a RecursionError was being handled",
    "_PyMem_DebugCheckAddress": "a block of memory was written past its end",
    "_PyObject_AssertFailed": "a check of an object failed",
}


# Since 3.12 a fatal error on a thread without the GIL faults before it aborts, when faulthandler was ever used (also by
# us): fatal_error calls _PyFaulthandler_Fini, whose PyMem_Free wants a thread state. Seen with 3.12.1 and 3.13.0.
_GIVING_UP = "_PyFaulthandler_Fini"


def check(crash: Crash) -> Iterator[Finding]:
    giving_up = any(plain_name(frame) == _GIVING_UP for frame in crash.native[:4] if frame.trust != "scan")
    if crash.reading.mechanism is not Mechanism.ABORT_OTHER and not giving_up:
        return
    found: Cite | None = None
    reason: str | None = None
    for index, frame in enumerate(crash.native[:24]):
        if frame.trust == "scan" or runs_python(frame):
            break
        if "python" not in (frame.library or ""):
            if found is not None:
                break
            continue
        name = plain_name(frame)
        if name in PYTHON_FATAL:
            found = found or Cite("crash", f"native.frames[{index}]", frame_text(frame))
        reason = reason or _REASONS.get(name)
    if giving_up:
        reason = reason or "on a thread without the GIL, so that the interpreter faulted before it could abort"
    if found is None:
        return
    where = _where(crash)
    yield Finding(
        cause="python-fatal-error",
        confidence=Confidence.LIKELY,
        summary=f"Python gave up with a fatal error{where}" + (f": {reason}." if reason else "."),
        supports=[*crash.reading.supports, found, *places(crash)],
        against=list(crash.reading.against),
        unknown=[Gap("stderr", "the reason, which Python printed", "look in the job's log for: Fatal Python error")],
        remedies=[
            Remedy(
                "Read the reason in the job's log, and look at the native code that was running",
                "grep -A3 'Fatal Python error' LOG",
            ),
            Remedy(
                "Run once with Python's own checks: a damaged object is found earlier",
                "PYTHONMALLOC=debug python -X dev ...",
                settles=True,
            ),
        ],
    )


def _where(crash: Crash) -> str:
    blamed = blame(crash)
    if blamed.frame is not None:
        return f", called from {frame_name(blamed.frame)}"
    if blamed.python is not None:
        return f" at {line_text(blamed.python)}"
    return ", called through ctypes" if blamed.border == "ctypes" else ""


def check_death(death: Death) -> Iterator[Finding]:
    texts = [
        one for one in abort_texts(death, "fatal-python-error") if one.message and not one.message.startswith(_SIGNALS)
    ]
    if not texts:
        return
    said = texts[-1]
    yield Finding(
        cause="python-fatal-error",
        confidence=Confidence.LIKELY,
        summary=f"Python gave up with a fatal error: {' '.join((said.message or '').split())[:300].rstrip('.')}.",
        supports=[line_cite(said.line), *death.ending],
        unknown=[Gap("crash", "which native code was running", "ftforensics run -- COMMAND...")],
        remedies=[
            Remedy(
                "Run once with Python's own checks: a damaged object is found earlier",
                "PYTHONMALLOC=debug python -X dev ...",
                settles=True,
            )
        ],
    )

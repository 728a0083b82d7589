"""A C++ exception was thrown and nobody caught it.

## What it means

C++ code threw an exception that no caller handles, that escaped a `noexcept` function or a destructor, or that was
thrown in a thread of its own. The C++ runtime then calls `std::terminate`, which aborts the process. Had it been
thrown on a path called from Python, pybind11 would have turned it into a Python exception.

## How it is told apart

SIGABRT raised by the process itself, with a throw on the stack between the C++ runtime and `abort`, or an exception at
hand in the crashing thread. `std::terminate` alone is no exception (see `raised-by-program`). It is proven when the
process's own exception record names the exception, and the stack shows the runtime ending the process in the middle of
a throw. Less is likely at most: an exception that was caught stays at hand while its handler runs, and the handler may
have called `std::terminate` or `abort` for another reason. Without a crash record it is likely when SIGABRT ended the
process and "terminate called after throwing" stands in its output.

## What to do

1. Read the exception's text: it usually names the real problem (a CUDA error, a failed connection, no memory).
2. When the crashing thread is a watchdog of NCCL, the collective that timed out is the place to look, not the
   watchdog.
3. `TORCH_SHOW_CPP_STACKTRACES=1` adds where it was thrown to the exceptions of torch.

## Seen in the field

- ProcessGroupNCCL's watchdog thread rethrows a timeout or a CUDA error: the process ends by SIGABRT.
- `std::bad_alloc` in a data-loading thread written in C++.
- `c10::Error` from a destructor at the end of the program.

## References

- C++ standard [except.terminate]; Itanium C++ ABI, exception handling
- PyTorch documentation, `TORCH_NCCL_ASYNC_ERROR_HANDLING`
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.advice import has_torch
from ftforensics.causes.blame import blame, frame_name, line_text
from ftforensics.causes.ending import abort_texts, line_cite
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import FORCED_UNWIND, TERMINATE, THROW, find_function, places
from ftforensics.model.basics import Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism
from ftforensics.parsers.exception_text import exception_type

KIND = Kind.OWN_FAULT


def check(crash: Crash) -> Iterator[Finding]:
    if crash.reading.mechanism is not Mechanism.ABORT_CXX_EXCEPTION:
        return
    exception = crash.record.cxx_exception
    if exception is None and find_function(crash, FORCED_UNWIND, depth=24) is not None:
        return  # a thread was ended (pthread_exit) within a function that lets nothing through: nothing was thrown
    terminate = find_function(crash, TERMINATE, depth=16)
    thrown = find_function(crash, THROW, depth=24)
    recorded = exception is not None and bool(exception.type)
    unknown = list(crash.reading.unknown)
    if not recorded:
        unknown.append(Gap("crash", "which exception it was", "its text is on stderr: terminate called after throwing"))
    if terminate is None:
        unknown.append(Gap("symbols", "whether std::terminate is on the stack"))
    name = exception_type(exception.type) if exception is not None and exception.type else None
    what = exception.what if exception is not None else None
    said = f"{name}: {what}" if name and what else name or what
    yield Finding(
        cause="uncaught-cxx-exception",
        confidence=Confidence.PROVEN if recorded and terminate and thrown and _own(crash) else Confidence.LIKELY,
        summary=f"A C++ exception was not caught: {said[:300]}." if said else "A C++ exception was not caught.",
        supports=[*crash.reading.supports, *([thrown] if thrown else []), *places(crash)],
        against=list(crash.reading.against),
        unknown=unknown,
        remedies=[
            Remedy(f"Read the exception's own text and act on that{_by_whom(crash)}"),
            *(
                [Remedy("Run again with the place it was thrown at", "TORCH_SHOW_CPP_STACKTRACES=1 python ...")]
                if has_torch(crash)
                else []
            ),
        ],
    )


def _own(crash: Crash) -> bool:
    """Does the kernel say that this process raised the signal?"""
    signal, process = crash.record.signal, crash.record.process
    return bool(signal and signal.sender and process and signal.sender.pid == process.pid and signal.via is None)


def _by_whom(crash: Crash) -> str:
    blamed = blame(crash)
    if blamed.frame is not None:
        return f"; it came from {frame_name(blamed.frame)}"
    return f"; it came from below {line_text(blamed.python)}" if blamed.python else ""


def check_death(death: Death) -> Iterator[Finding]:
    # "terminate called without an active exception" names neither type nor text, and is none.
    texts = [one for one in abort_texts(death, "cxx-exception") if one.type or one.message]
    if not texts:
        return
    thrown = texts[-1]
    said = ": ".join(part for part in (thrown.type, thrown.message) if part)
    yield Finding(
        cause="uncaught-cxx-exception",
        confidence=Confidence.LIKELY,
        summary=f"A C++ exception was not caught: {' '.join(said.split())[:300]}.",
        supports=[line_cite(thrown.line), *death.ending],
        unknown=[Gap("crash", "where it was thrown", "ftforensics run -- COMMAND...")],
        remedies=[
            Remedy("Read the exception's own text and act on that"),
            Remedy("Run again with the place it was thrown at", "TORCH_SHOW_CPP_STACKTRACES=1 python ..."),
        ],
    )

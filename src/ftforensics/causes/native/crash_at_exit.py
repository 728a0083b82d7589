"""The crash happened while the process was ending.

## What it means

The work was done, or Python was already leaving, and a destructor, an `atexit` function or a thread that was still
running touched something that had been taken down before it. Results written before are usually whole; the exit
status is not.

## How it is told apart

The process had begun to exit: its own state says so (`process.python` is "exiting" or "finalized"), or the exit path
of the C library or of the interpreter is on the stack. That is likely. It says *when*, so another cause that says
*why* comes before it.

## What to do

1. Check that the last checkpoint and the logs are complete: if they are, the run itself was good.
2. End in order: `dist.destroy_process_group()`, shut data loaders and loggers down, delete models and CUDA tensors
   before the script's end.
3. Join threads you started; daemon threads that run C++ code are cut off in the middle.

## Seen in the field

- NCCL communicators and CUDA contexts destroyed after the driver has been unloaded.
- Two copies of one C++ library, whose static destructors free the same object.
- "terminate called without an active exception" after the work was done: at its end Python up to 3.13 ends a thread
  that asks for the GIL by `pthread_exit`, in torch a thread of gloo that lets go of its last tensor, and C++ code in
  between does not let that through (CPython issue 87135).
- Exit code 134 or 139 after the last epoch was printed.

## References

- Python documentation, `atexit`, "Interpreter shutdown"; man 3 exit
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.advice import advice, has_torch
from ftforensics.causes.blame import blame_text
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import find_function, places
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism

KIND = Kind.CIRCUMSTANCE
_EXIT_PATH = (
    "Py_FinalizeEx", "_Py_Finalize", "Py_Finalize", "__run_exit_handlers", "_dl_fini", "__cxa_finalize", "exit",
    "_dl_call_fini",
)  # fmt: skip
# Python/ceval_gil.c, take_gil(), of a thread that is not the finalizing one.
_THREAD_ENDED = ("PyThread_exit_thread",)
_STATES = {
    "exiting": "atexit functions had begun to run",
    "finalized": "the interpreter had been taken down",
}


def check(crash: Crash) -> Iterator[Finding]:
    if crash.record.signal is None or crash.reading.mechanism in (Mechanism.SENT_BY_PROCESS, Mechanism.KILLED):
        return
    state = crash.record.process.python if crash.record.process else None
    frame = find_function(crash, _EXIT_PATH, depth=256)
    supports = []
    if state in _STATES:
        supports.append(Cite("crash", "process.python", f'"{state}": {_STATES[state]}'))
    if frame is not None:
        supports.append(frame)
    ended = find_function(crash, _THREAD_ENDED, depth=24) if state in _STATES else None
    if ended is not None:
        supports.append(ended)
    if not supports:
        return
    yield Finding(
        cause="crash-at-exit",
        confidence=Confidence.LIKELY,
        summary=_summary(crash, thread_ended=ended is not None),
        supports=[*supports, *crash.reading.supports, *places(crash)],
        against=list(crash.reading.against),
        unknown=list(crash.reading.unknown),
        remedies=[
            Remedy("Check that the last checkpoint is complete: the work itself was probably finished"),
            Remedy(
                "Take things down in order before the script ends: data loaders, loggers, threads, models",
                "torch.distributed.destroy_process_group()" if has_torch(crash) else None,
            ),
            *(advice(crash) if crash.record.signal.name != "SIGABRT" else []),
        ],
    )


def _summary(crash: Crash, *, thread_ended: bool) -> str:
    if thread_ended:
        return (
            "The process crashed while it was ending, after its work: Python ended a thread that was still running C++ "
            f"code: {_what(crash)}."
        )
    return f"The process crashed while it was ending, after its work: {_what(crash)}."


def _what(crash: Crash) -> str:
    signal = crash.record.signal
    name = (signal.name if signal else None) or "a signal"
    where = blame_text(crash)
    return f"{name} in {where}" if where else name

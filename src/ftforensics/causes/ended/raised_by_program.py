"""The program ended itself with a signal.

## What it means

Nothing faulted: the program asked for its own end, by `os.abort()` or C's `abort()`, or by sending itself a signal
(`signal.raise_signal`, `os.kill` with its own pid, `raise`, a timer that it set). A "segmentation fault" raised this
way is none.

## How it is told apart

The kernel tells where a signal came from, and names this very process. For SIGABRT the stack must show the request too,
and no better reason may be known: an assertion, the allocator and an exception that nobody caught end in `abort()` as
well and are causes of their own. It is proven when the kernel filled in the sender and the function that stands behind
`os.abort`, `os.kill` or `signal.raise_signal` is on the stack; those serve nobody but a Python program. A call of C's
`abort` or `raise` is likely: a signal handler of a library may have raised again what it had caught.

Without a crash record a tracer or the recorder can have seen that the process sent itself the signal that ended it:
proven when traced by its exact pid, else likely. SIGINT is left out, which Python sends itself after a
KeyboardInterrupt to end with the right status.

`std::terminate()` with no exception thrown counts here too: a `std::thread` that nobody joined, a pure virtual call.

## What to do

1. Read what the program wrote to stderr before: libraries say there why they give up.
2. Look at the caller that the summary names.

## Seen in the field

- NCCL, gRPC and CUDA libraries call `abort()` after a line on stderr.
- Watchdogs inside a training script that call `os.abort()` or `os.kill(os.getpid(), ...)` to get a core file.

## References

- man 3 abort, man 3 raise, man 2 sigaction (si_code, si_pid)
- Python documentation, `os.abort`, `signal.raise_signal`
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.blame import blame, frame_name, line_text, runs_python
from ftforensics.causes.ending import FAULTS, SI_TKILL, SI_USER, is_own, last_signal, senders, signal_of, strength
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import PYTHON_FATAL, TERMINATE, find_function, frame_text, places, plain_name
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism, Uncovered
from ftforensics.model.signals import signal_name

KIND = Kind.OWN_FAULT
_SIGINT = 2
# Functions of the interpreter, and what they are to a Python program.
_PYTHON = {
    "os_abort": "os.abort()",
    "os_abort_impl": "os.abort()",
    "signal_raise_signal": "signal.raise_signal()",
    "signal_raise_signal_impl": "signal.raise_signal()",
    "signal_pthread_kill": "signal.pthread_kill()",
    "os_kill": "os.kill()",
    "os_kill_impl": "os.kill()",
    "os_killpg": "os.killpg()",
}
_C = ("abort", "raise", "gsignal", "kill", "killpg", "pthread_kill", "tgkill", "sigqueue", *TERMINATE)
# How people know the function behind the symbol.
_SAID = {"gsignal": "raise", **dict.fromkeys(TERMINATE, "std::terminate")}


def check(crash: Crash) -> Iterator[Finding]:
    signal, process = crash.record.signal, crash.record.process
    if signal is not None and crash.reading.uncovered is Uncovered.ARRANGED:
        yield Finding(
            cause="raised-by-program",
            confidence=Confidence.LIKELY,
            summary=f"{signal.name or 'A signal'} was {crash.reading.plain}; no fault is recorded.",
            supports=[*crash.reading.supports, *places(crash)],
            remedies=[Remedy("Look for the watchdog that set it, and at what the stack was busy with")],
        )
        return
    if signal is None or signal.sender is None or signal.via is not None or process is None:
        return
    if signal.sender.pid != process.pid or signal.code is None or signal.code > 0:
        return
    if find_function(crash, PYTHON_FATAL, depth=24) is not None:
        return
    message = crash.record.abort_message.text if crash.record.abort_message else None
    if crash.reading.mechanism not in (None, Mechanism.ABORT_OTHER) or message:
        return
    asked = _request(crash)
    if asked is not None and not asked[2] and _is_handler(crash):
        return
    name = signal.name or "A signal"
    if asked is None:
        # abort() always sends SIGABRT in this way: alone it does not say that anybody meant it.
        if signal.number == 6:
            return
        summary = f"{name} was raised by the program itself; no fault is recorded."
    else:
        # C code may raise a signal again after it has caught a real one.
        doubt = "nothing faulted" if asked[2] else "no fault is recorded"
        if asked[0] == "std::terminate()":
            doubt = "no exception is recorded"
        summary = f"{asked[0]} was called{_by_whom(crash)}: the program ended itself with {name}; {doubt}."
    by_kernel = signal.code in (SI_USER, SI_TKILL)
    supports = [*crash.reading.supports]
    if asked is not None:
        supports.append(asked[1])
    yield Finding(
        cause="raised-by-program",
        confidence=Confidence.PROVEN if asked and asked[2] and by_kernel else Confidence.LIKELY,
        summary=summary,
        supports=[*supports, *places(crash)],
        against=list(crash.reading.against),
        remedies=[
            Remedy("Read what was written to stderr before it: who gives up on purpose usually says why"),
            *_about_terminate(crash),
            *_look(crash),
        ],
    )


def check_death(death: Death) -> Iterator[Finding]:
    number = signal_of(death)
    if death.alive or death.crash is not None or number is None or number in (*FAULTS, _SIGINT):
        return
    traced = next((one for one in senders(death) if is_own(death, one)), None)
    noted = last_signal(death)
    own = noted is not None and noted.signal.sender is not None and noted.signal.sender.pid == death.pid
    if traced is None and not own:
        return
    sure = strength(traced.match.tie, traced.match.against) if traced is not None else Confidence.LIKELY
    cite = traced.cite if traced is not None else noted.cite if noted is not None else None
    yield Finding(
        cause="raised-by-program",
        confidence=sure,
        summary=f"The program sent itself {signal_name(number)}.",
        supports=[*([cite] if cite is not None else []), *death.ending],
        against=list(traced.match.against) if traced is not None else [],
        remedies=[Remedy("Look for os.kill or a watchdog in the program itself, and for what it wrote before")],
    )


def _is_handler(crash: Crash) -> bool:
    """Does the blamed frame belong to a library that handles this signal? Then it passed a fault on."""
    frame, signal = blame(crash).frame, crash.record.signal
    return frame is not None and any(
        previous.library == frame.library
        for handler in crash.record.handlers or []
        if signal is not None and handler.signal == signal.name
        for previous in handler.previous
    )


def _request(crash: Crash) -> tuple[str, Cite, bool] | None:
    """The innermost call that asked for the signal, its frame, and whether only a Python program makes it."""
    found: tuple[str, Cite, bool] | None = None
    for index, frame in enumerate(crash.native[:16]):
        if frame.trust == "scan" or runs_python(frame):
            break
        name = plain_name(frame)
        cite = Cite("crash", f"native.frames[{index}]", frame_text(frame))
        if name in _PYTHON and "python" in (frame.library or ""):
            return _PYTHON[name], cite, True
        if name in _C:
            found = f"{_SAID.get(name, name)}()", cite, False
    return found


def _by_whom(crash: Crash) -> str:
    blamed = blame(crash)
    if blamed.frame is not None:
        return f" by {frame_name(blamed.frame)}"
    if blamed.python is None:
        return ""
    through = f" through {blamed.border}" if blamed.border else ""
    return f"{through} at {line_text(blamed.python)}"


def _about_terminate(crash: Crash) -> Iterator[Remedy]:
    if find_function(crash, ("__cxa_pure_virtual",), depth=16) is not None:
        yield Remedy(
            "A pure virtual function was called: look for a virtual call in a constructor or destructor, or on an "
            "object that was already gone"
        )
    elif find_function(crash, TERMINATE, depth=16) is not None:
        yield Remedy(
            "Look for a std::thread that was destroyed before join() or detach(), or an exception that left a noexcept "
            "function"
        )


def _look(crash: Crash) -> Iterator[Remedy]:
    blamed = blame(crash)
    if blamed.frame is not None:
        yield Remedy(f"Look in the source of {frame_name(blamed.frame)} for the reason")
    elif blamed.python is not None:
        yield Remedy(f"Look at {line_text(blamed.python)}: under which condition does it end the program?")

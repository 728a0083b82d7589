"""The program crashed in native code.

## What it means

Machine code in this process did something the processor or the C library does not allow: it used a pointer that is
null, freed or overwritten, ran an instruction that does not exist, divided by zero, or gave up by itself with
`abort()`. Python cannot catch this; the process is ended by the signal. This cause is the plain statement of that
fact: nothing more specific could be shown.

## How it is told apart

The signal came from the hardware or was raised by the process itself, and no other cause is at least likely. It is
never called proven: that a fault happened is certain, but a fault is not yet a reason. `verdict.mechanism` says what
kind of access it was.

## What to do

1. Read the merged stack from the top. The first frame that is not libc, libstdc++ or the interpreter names the
   library to look at.
2. If that library is an extension built for another version of torch or CUDA, reinstall or rebuild it.
3. Run again with `CUDA_LAUNCH_BLOCKING=1` when the top frames are in CUDA libraries: the Python line is then the
   right one.
4. Run with a debug allocator (`MALLOC_CHECK_=3`, or an AddressSanitizer build) when a wild pointer turns up in a
   different place every time.

## Seen in the field

- "exitcode -11" of torchrun without any traceback: the most frequent question with the fewest answers, for want of a
  native stack.
- Extensions compiled against another torch, called with tensors whose layout has changed.

## References

- man 7 signal, man 2 sigaction (si_code)
- PyTorch documentation, "torchrun": exit codes below zero are signals
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import site_text, top_frame, top_python
from ftforensics.model.case import Crash
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism

KIND = Kind.RESIDUAL
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS")
_NUMBERS = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV", 31: "SIGSYS"}
_SAID = {
    Mechanism.NULL_READ: "read through a null pointer",
    Mechanism.NULL_WRITE: "write through a null pointer",
    Mechanism.NULL_CALL: "call through a null function pointer",
    Mechanism.WILD_READ: "read through a bad pointer",
    Mechanism.WILD_WRITE: "write through a bad pointer",
    Mechanism.WILD_CALL: "jump to an address where no code is",
    Mechanism.NON_CANONICAL: "use of a pointer value that no address has",
    Mechanism.WRITE_TO_READONLY: "write to read-only memory",
    Mechanism.EXECUTE_DATA: "jump into memory that holds data",
    Mechanism.STACK_OVERFLOW: "stack overflow",
    Mechanism.BUS_TRUNCATED_FILE: "a page of a mapped file could not be supplied",
    Mechanism.BUS_SHM_FULL: "a page of shared memory could not be supplied",
    Mechanism.BUS_HARDWARE: "the machine reported damaged memory",
    Mechanism.ILLEGAL_INSTRUCTION: "an instruction the processor refuses",
    Mechanism.INTEGER_DIVISION: "an integer division by zero or with overflow",
    Mechanism.ABORT_CXX_EXCEPTION: "a C++ exception that nobody caught",
    Mechanism.ABORT_HEAP: "the allocator found its heap damaged",
    Mechanism.ABORT_ASSERT: "a failed assertion",
    Mechanism.ABORT_OTHER: "the program gave up by itself (abort)",
}
_WITH_ADDRESS = (
    Mechanism.WILD_READ, Mechanism.WILD_WRITE, Mechanism.WILD_CALL, Mechanism.NON_CANONICAL,
    Mechanism.WRITE_TO_READONLY, Mechanism.EXECUTE_DATA,
)  # fmt: skip


def check(crash: Crash) -> Iterator[Finding]:
    signal = crash.record.signal
    if signal is None:
        return
    name = signal.name or _NUMBERS.get(signal.number or 0)
    if name not in _FAULTS or crash.reading.mechanism in (Mechanism.SENT_BY_PROCESS, Mechanism.KILLED):
        return
    # Sent in software by nobody knows whom: not shown to be this program's fault.
    unsure = signal.code is not None and signal.code <= 0 and signal.sender is None and name != "SIGABRT"
    where = site_text(crash)
    where = f"{name} in {where}" if where else name
    said = _said(crash)
    yield Finding(
        cause="native-fault",
        confidence=Confidence.POSSIBLE if unsure else Confidence.LIKELY,
        summary=f"{where}: {said}." if said else f"{where}.",
        supports=[*crash.reading.supports, *filter(None, (top_frame(crash), top_python(crash)))],
        against=list(crash.reading.against),
        unknown=list(crash.reading.unknown),
        remedies=_remedies(crash),
    )


def _said(crash: Crash) -> str | None:
    word, address = crash.reading.mechanism, crash.reading.address
    message = crash.record.abort_message.text if crash.record.abort_message else None
    if word in (Mechanism.ABORT_ASSERT, Mechanism.ABORT_OTHER) and message:
        return " ".join(message.split())[:300].rstrip(".")
    if word is None:
        return None
    if address is None:
        return _SAID[word]
    if word in (Mechanism.NULL_READ, Mechanism.NULL_WRITE, Mechanism.NULL_CALL):
        return f"{_SAID[word]} (address {address})" if address else _SAID[word]
    return f"{_SAID[word]}, {address}" if word in _WITH_ADDRESS else _SAID[word]


def _remedies(crash: Crash) -> list[Remedy]:
    if crash.reading.mechanism is Mechanism.BUS_HARDWARE:
        return [Remedy("Take the node out of service and have its memory tested", "dmesg | grep -i 'hardware error'")]
    if crash.reading.mechanism is Mechanism.ABORT_ASSERT:
        return [Remedy("Read the assertion: it names the file, the line and the condition that did not hold")]
    remedies = [
        Remedy("Look at the first frame that is neither libc nor the interpreter: reinstall or rebuild that library")
    ]
    if any("cuda" in (frame.library or "").lower() for frame in crash.native[:8]):
        remedies.append(
            Remedy("Run again so that the Python line is the right one", "CUDA_LAUNCH_BLOCKING=1 python ...")
        )
    return remedies

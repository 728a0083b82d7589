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

Without a crash record the wait status or a launcher's line says the signal, and the kernel's own line about the fault,
where there is one, the kind of access and the library.

## What to do

1. Look at the frame that the summary names. Frames of libc, libstdc++, libffi and the interpreter above it only did
   what they were asked to do; under `ctypes` or `cffi` it is the line of Python that passed the pointer.
2. If that frame is an extension built for another version of torch or CUDA, reinstall or rebuild it.
3. Run again with `CUDA_LAUNCH_BLOCKING=1` when CUDA is in use: the Python line is then the right one.
4. Run with a checking allocator (`MALLOC_CHECK_=3`, since glibc 2.34 together with
   `LD_PRELOAD=libc_malloc_debug.so.0`; or an AddressSanitizer build) when a wild pointer turns up in a different place
   every time.

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

from ftforensics.causes.advice import advice
from ftforensics.causes.blame import blame_text
from ftforensics.causes.ending import FAULT_NAMES, FAULTS, abort_texts, line_cite, signal_of
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import places
from ftforensics.model.case import Crash
from ftforensics.model.death import Death, FaultMatch, Tie
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism, Uncovered
from ftforensics.model.signals import signal_name

KIND = Kind.RESIDUAL
_SAID = {
    Mechanism.NULL_READ: "read through a null pointer",
    Mechanism.NULL_WRITE: "write through a null pointer",
    Mechanism.NULL_CALL: "call through a null function pointer",
    Mechanism.WILD_READ: "read through a bad pointer",
    Mechanism.WILD_WRITE: "write through a bad pointer",
    Mechanism.WILD_CALL: "jump to an address where no code is",
    Mechanism.NON_CANONICAL: "use of a value that cannot be an address",
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

_UNCOVERED = {
    Uncovered.MISALIGNED: Remedy(
        "Look for a pointer cast to a type that wants more alignment, or a buffer from an allocator that gives less: "
        "-fsanitize=alignment names the line"
    ),
    Uncovered.FLOATING_POINT: Remedy(
        "Find who enabled floating-point traps (feenableexcept, _mm_setcsr): without them the result is inf or nan"
    ),
    Uncovered.NO_HUGE_PAGE: Remedy(
        "Reserve more huge pages (vm.nr_hugepages), or map the memory without MAP_HUGETLB", "grep Huge /proc/meminfo"
    ),
}


def check(crash: Crash) -> Iterator[Finding]:
    signal = crash.record.signal
    if signal is None:
        return
    name = signal.name or signal_name(signal.number or 0)
    if name not in FAULT_NAMES or crash.reading.mechanism in (Mechanism.SENT_BY_PROCESS, Mechanism.KILLED):
        return
    if crash.reading.uncovered is Uncovered.ARRANGED:
        return
    # Sent in software by nobody knows whom: not shown to be this program's fault.
    unsure = signal.code is not None and signal.code <= 0 and signal.sender is None and name != "SIGABRT"
    where = blame_text(crash)
    where = f"{name} in {where}" if where else name
    said = _said(crash)
    yield Finding(
        cause="native-fault",
        confidence=Confidence.POSSIBLE if unsure else Confidence.LIKELY,
        summary=f"{where}: {said}." if said else f"{where}.",
        supports=[*crash.reading.supports, *places(crash)],
        against=list(crash.reading.against),
        unknown=list(crash.reading.unknown),
        remedies=_remedies(crash),
    )


def _said(crash: Crash) -> str | None:
    word, address = crash.reading.mechanism, crash.reading.address
    message = crash.record.abort_message.text if crash.record.abort_message else None
    if word in (Mechanism.ABORT_ASSERT, Mechanism.ABORT_OTHER) and message:
        return " ".join(message.split())[:300].rstrip(".")
    if crash.record.signal is not None and crash.record.signal.via is not None:
        return "raised again by another library's handler; the first fault was not seen"
    if crash.reading.plain is not None:
        at = f", {address}" if word in _WITH_ADDRESS and address is not None else ""
        return crash.reading.plain + at
    if word is None:
        return None
    if crash.reading.deliberate_trap:
        return "an instruction put there to stop the program (a failed check, or code that must not be reached)"
    if address is None:
        return _SAID[word]
    if word in (Mechanism.NULL_READ, Mechanism.NULL_WRITE, Mechanism.NULL_CALL):
        return f"{_SAID[word]} (address {address})" if address else _SAID[word]
    return f"{_SAID[word]}, {address}" if word in _WITH_ADDRESS else _SAID[word]


def _remedies(crash: Crash) -> list[Remedy]:
    if crash.reading.mechanism is Mechanism.BUS_HARDWARE:
        return [Remedy("Take the node out of service and have its memory tested", "dmesg | grep -i 'hardware error'")]
    if crash.reading.mechanism is Mechanism.ABORT_ASSERT:
        where = "" if crash.record.abort_message else " in the job's log"
        return [Remedy(f"Read the assertion{where}: it names the file, the line and the condition that did not hold")]
    if crash.reading.uncovered is not None:
        return [_UNCOVERED[crash.reading.uncovered], *advice(crash)]
    if crash.reading.deliberate_trap:
        return [Remedy("Read what was printed before it: such a trap stands behind a failed check"), *advice(crash)]
    return advice(crash)


def check_death(death: Death) -> Iterator[Finding]:
    number = signal_of(death)
    if death.alive or death.crash is not None or number not in FAULTS or number is None:
        return
    fault = next((one for one in death.faults if one.match.tie is not Tie.WEAK), None)
    texts = [one for one in death.texts if one.kind in ("assertion", "worker-fault")]
    said = _said_outside(death)
    if said is None and texts and texts[-1].kind == "assertion" and texts[-1].message:
        said = " ".join(texts[-1].message.split())[:300].rstrip(".")
    ended = [one for one in abort_texts(death, "cxx-exception") if not one.type and not one.message]
    if said is None and ended:
        texts.append(ended[-1])
        said = "the C++ runtime ended the program (std::terminate), and no exception is named"
    where = f"{signal_name(number)}{_library(fault)}"
    speechless = left_no_record(death)
    if speechless:
        where += ", and no record: it died where our handler could not run"
    supports = [*death.reading.supports, *([fault.cite] if fault is not None else []), *death.ending]
    supports += [line_cite(one.line) for one in texts]
    yield Finding(
        cause="native-fault",
        confidence=Confidence.LIKELY,
        summary=f"{where}: {said}." if said else f"{where}.",
        supports=list(dict.fromkeys(supports)),
        against=list(death.reading.against),
        unknown=list(death.reading.unknown),
        remedies=[
            Remedy(
                "Give native threads a stack for signals: `run` does, unless it is told --no-preload"
                if speechless
                else "Record the next one: its stack names the function and the line of Python",
                "ftforensics run -- COMMAND...",
            )
        ],
    )


def left_no_record(death: Death) -> bool:
    """Handlers were installed, as its recorder shows, and yet there is no crash record: the thread had no alternate
    stack and none of its own left, or it blocked the signal."""
    return death.crash is None and death.ring is not None and death.ring.end.how is None


def _said_outside(death: Death) -> str | None:
    word, address = death.reading.mechanism, death.reading.address
    if death.reading.plain is not None:
        return death.reading.plain
    if word is None or word in (Mechanism.SENT_BY_PROCESS, Mechanism.KILLED):
        return None
    said = _SAID.get(word)
    return f"{said} (address {address})" if said and address else said


def _library(fault: FaultMatch | None) -> str:
    """Where the kernel's line says the instruction was, as " in libx.so +0x1136"."""
    if fault is None or fault.fault.file is None:
        return ""
    at = fault.fault
    # Newer kernels print where in the file the instruction is; of the others only a mapping's start is known, which is
    # the file's start for the first mapping only (mm/memory.c, print_vma_addr).
    offset = f" +{int(at.map_offset):#x}" if at.map_offset is not None else ""
    return f" in {(at.file or '').rpartition('/')[2]}{offset}"

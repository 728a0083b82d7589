"""From a record to its `MechanismReading`: dispatch on the signal."""

from __future__ import annotations

import signal as numbers
from collections.abc import Sequence

import msgspec

from ftforensics.diagnose.mechanism import abort, bus, fault
from ftforensics.diagnose.mechanism.machine import Machine
from ftforensics.diagnose.mechanism.origin import ARRANGED, Origin, signal_origin
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Frame
from ftforensics.model.mechanism import Mechanism, MechanismReading, Uncovered

_ILL_REASONS = {
    1: "opcode",
    2: "operand",
    3: "addressing mode",
    4: "trap",
    5: "privileged opcode",
    6: "privileged register",
}
_FPE_INTDIV = 1
# The processor computes on (inf, nan) unless somebody unmasked its traps (man 3 feenableexcept).
_FPE_TRAPS = {
    2: "an integer overflow",
    3: "a floating-point division by zero, with traps enabled",
    4: "a floating-point overflow, with traps enabled",
    5: "a floating-point underflow, with traps enabled",
    6: "an inexact floating-point result, with traps enabled",
    7: "an invalid floating-point operation, with traps enabled",
}


def read_mechanism(record: CrashRecord, frames: Sequence[Frame]) -> MechanismReading:
    """`frames`: the crashing thread's native frames with function names where known, innermost first."""
    signal = record.signal
    if signal is None or signal.number is None:
        return MechanismReading(unknown=(Gap("crash", "the record has no signal member"),))
    origin, cite = signal_origin(record)
    if origin is Origin.OTHER_PROCESS:
        word = Mechanism.KILLED if signal.number == numbers.SIGKILL else Mechanism.SENT_BY_PROCESS
        return MechanismReading(word, supports=(cite,))
    if origin is Origin.ARRANGED:
        plain = f"sent by {ARRANGED[signal.code or 0]}"
        return MechanismReading(plain=plain, uncovered=Uncovered.ARRANGED, supports=(cite,))
    machine = Machine(record)
    if signal.number == numbers.SIGABRT:
        return abort.read_abort(record, frames)
    if origin is Origin.OWN_PROCESS:
        return MechanismReading(
            supports=(cite,),
            unknown=(Gap("crash", "the signal was raised in software, so no address or access belongs to it"),),
        )
    if signal.number == numbers.SIGSEGV:
        reading = fault.read_fault(record, machine)
    elif signal.number == numbers.SIGBUS:
        reading = bus.read_bus(record, machine)
    elif signal.number == numbers.SIGILL:
        reading = _illegal(record, machine)
    elif signal.number == numbers.SIGFPE:
        reading = _arithmetic(record, machine)
    elif signal.number == numbers.SIGKILL:
        reading = MechanismReading(Mechanism.KILLED, supports=(cite,))
    else:
        reading = MechanismReading(supports=(cite,))
    return msgspec.structs.replace(reading, instruction=machine.instruction_bytes())


def _illegal(record: CrashRecord, machine: Machine) -> MechanismReading:
    assert record.signal is not None
    code = record.signal.code
    reason = _ILL_REASONS.get(code or 0, "instruction")
    text = f"SIGILL, {record.signal.code_name or f'si_code {code}'}: illegal {reason}"
    supports = [Cite("crash", "signal.code", text)]
    feature = None
    if machine.x86 is not None:
        if machine.x86.trap:
            supports.append(
                Cite(
                    "crash",
                    "code",
                    f"{machine.instruction_bytes()} is {machine.x86.trap}: a trap the compiler put there on purpose",
                )
            )
        elif machine.x86.features:
            feature = _missing(machine.x86.features, record) or machine.x86.features[-1]
            supports.append(
                Cite("crash", "code", f"{machine.instruction_bytes()} needs {' and '.join(machine.x86.features)}")
            )
    elif machine.arm is not None and machine.arm.trap:
        supports.append(
            Cite(
                "crash",
                "code",
                f"{machine.instruction_bytes()} is {machine.arm.trap}: a trap the compiler put there on purpose",
            )
        )
    unknown = () if machine.code else (Gap("crash", "the bytes at the program counter were not recorded"),)
    return MechanismReading(
        Mechanism.ILLEGAL_INSTRUCTION,
        record.signal.address,
        feature=feature,
        deliberate_trap=bool((machine.x86 and machine.x86.trap) or (machine.arm and machine.arm.trap)),
        supports=tuple(supports),
        unknown=unknown,
    )


def _missing(features: Sequence[str], record: CrashRecord) -> str | None:
    flags = record.job.cpu_flags.split() if record.job and record.job.cpu_flags else []
    return next((feature for feature in features if feature not in flags), None) if flags else None


def _arithmetic(record: CrashRecord, machine: Machine) -> MechanismReading:
    assert record.signal is not None
    signal = record.signal
    cite = Cite("crash", "signal.code", f"SIGFPE, {signal.code_name or f'si_code {signal.code}'}")
    if signal.code == _FPE_INTDIV or signal.trap == 0:
        supports = [cite]
        if machine.x86 is not None and machine.x86.divides:
            supports.append(Cite("crash", "code", f"{machine.instruction_bytes()} is an integer division"))
        # x86 reports INT_MIN / -1 as the same divide error, so "by zero" would be a guess.
        return MechanismReading(Mechanism.INTEGER_DIVISION, signal.address, None, supports=tuple(supports))
    return MechanismReading(
        address=signal.address,
        plain=_FPE_TRAPS.get(signal.code or 0, "a floating-point trap"),
        uncovered=Uncovered.FLOATING_POINT,
        supports=(cite,),
    )

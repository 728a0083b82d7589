"""What the hardware or the kernel did to end the process: closed words, and the reading that chose one."""

from __future__ import annotations

from enum import Enum

import msgspec

from ftforensics.model.basics import Address, Cite, Gap


class Mechanism(str, Enum):
    """ "null" means an address below 64 KiB: a null pointer plus a member offset or a small index."""

    NULL_READ = "null-read"
    NULL_WRITE = "null-write"
    NULL_CALL = "null-call"
    WILD_READ = "wild-read"
    WILD_WRITE = "wild-write"
    WILD_CALL = "wild-call"
    NON_CANONICAL = "non-canonical"
    WRITE_TO_READONLY = "write-to-readonly"
    EXECUTE_DATA = "execute-data"
    STACK_OVERFLOW = "stack-overflow"
    BUS_TRUNCATED_FILE = "bus-truncated-file"
    BUS_SHM_FULL = "bus-shm-full"
    BUS_HARDWARE = "bus-hardware"
    ILLEGAL_INSTRUCTION = "illegal-instruction"
    INTEGER_DIVISION = "integer-division"
    ABORT_CXX_EXCEPTION = "abort-cxx-exception"
    ABORT_HEAP = "abort-heap"
    ABORT_ASSERT = "abort-assert"
    ABORT_OTHER = "abort-other"
    SENT_BY_PROCESS = "sent-by-process"
    KILLED = "killed"


class Uncovered(str, Enum):
    """What happened where no `Mechanism` covers it: those words are public and stay few."""

    MISALIGNED = "misaligned access"
    FLOATING_POINT = "floating-point trap"
    NO_HUGE_PAGE = "no huge page"
    ARRANGED = "a signal that the program had arranged for itself"


class Operand(msgspec.Struct, frozen=True):
    """The memory operand of the faulting instruction.

    text: as an assembler would show it, "[rax+rcx*8+0x28]"; address: computed from the saved registers, None when a
    segment base or a register is not in the record; access: "read", "write" or "read-write".
    """

    text: str
    address: Address | None = None
    access: str | None = None


class MechanismReading(msgspec.Struct, frozen=True):
    """The chosen word and everything it rests on.

    mechanism: None when the record does not say enough; address: the address in question, which for a
    non-canonical access is computed (the kernel reports 0); access: "read", "write", "exec" or None;
    mapping: the line of /proc/PID/maps that holds the address; feature: the CPU flag (name as in /proc/cpuinfo) that
    an illegal instruction needs; plain: what happened in half a sentence, where that says more than the word;
    uncovered: set only when mechanism is None; sp_at_guard: the stack pointer itself has reached the guard area, and
    the faulting instruction addresses memory through it; deliberate_trap: the instruction exists only to raise this
    signal (ud2, brk), which a compiler puts where the program must not go on.
    """

    mechanism: Mechanism | None = None
    address: Address | None = None
    access: str | None = None
    operand: Operand | None = None
    instruction: str | None = None
    mapping: str | None = None
    feature: str | None = None
    plain: str | None = None
    uncovered: Uncovered | None = None
    sp_at_guard: bool = False
    deliberate_trap: bool = False
    supports: tuple[Cite, ...] = ()
    against: tuple[Cite, ...] = ()
    unknown: tuple[Gap, ...] = ()

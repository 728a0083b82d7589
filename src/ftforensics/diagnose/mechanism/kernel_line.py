"""The mechanism from the kernel's own line about a fault, for a process that left no record."""

from __future__ import annotations

from ftforensics.diagnose.mechanism.machine import NULL_LIMIT
from ftforensics.model.basics import Address, Cite
from ftforensics.model.kernel import Fault
from ftforensics.model.mechanism import Mechanism, MechanismReading

# x86 page fault error code (Intel SDM vol. 3, 4.7; arch/x86/include/asm/trap_pf.h)
_PROTECTION, _WRITE, _FETCH = 1 << 0, 1 << 1, 1 << 4
_TRAPS = {
    "general protection": Mechanism.NON_CANONICAL,
    "invalid opcode": Mechanism.ILLEGAL_INSTRUCTION,
    "divide error": Mechanism.INTEGER_DIVISION,
}


def read_kernel_line(fault: Fault, cite: Cite) -> MechanismReading:
    """Without maps a protection fault on a write is "wild" unless the bits say more; so is any address that is not
    near zero."""
    trap = next((word for kind, word in _TRAPS.items() if kind in fault.kind), None)
    if trap is not None:
        # A general protection fault has other reasons than an address; the line does not tell them apart.
        return MechanismReading(trap, supports=(cite,))
    if fault.address is None or fault.error is None:
        return MechanismReading(supports=(cite,))
    address, error = int(fault.address), int(fault.error)
    access = "exec" if error & _FETCH else "write" if error & _WRITE else "read"
    null = address < NULL_LIMIT
    if access == "exec":
        word = Mechanism.NULL_CALL if null else Mechanism.EXECUTE_DATA if error & _PROTECTION else Mechanism.WILD_CALL
    elif access == "write":
        # A present page that refuses a write is read-only.
        word = (
            Mechanism.NULL_WRITE if null
            else Mechanism.WRITE_TO_READONLY if error & _PROTECTION
            else Mechanism.WILD_WRITE
        )  # fmt: skip
    else:
        word = Mechanism.NULL_READ if null else Mechanism.WILD_READ
    return MechanismReading(word, Address(address), access, supports=(cite,))

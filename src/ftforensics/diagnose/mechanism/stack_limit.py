"""Has the stack run out? The fault lies just below the stack's mapping, and the stack pointer is there too."""

from __future__ import annotations

from ftforensics.diagnose.mechanism.machine import Machine, mapping_cite
from ftforensics.model.basics import Address, Cite
from ftforensics.model.crash import CrashRecord
from ftforensics.model.mechanism import Mechanism, MechanismReading
from ftforensics.parsers.proc_maps import Mapping

PAGE = 4096
# How far one function's frame may reach past the end: larger local arrays exist, but are touched page by page under
# -fstack-clash-protection, the distributions' default.
FRAME_REACH = 64 * 1024
# The kernel keeps this much free below a growing stack (stack_guard_gap, 256 pages; mm/mmap.c since 4.12).
GUARD_GAP = 256 * PAGE
LARGEST_FRAME = 1 << 32  # a stack pointer further away is garbage
RED_ZONE = 128  # bytes below the stack pointer that a function may use (System V ABI, x86-64)


def read_stack_overflow(
    record: CrashRecord, machine: Machine, address: int, access: str | None, cite: Cite
) -> MechanismReading | None:
    """A reading when the stack of the crashing thread is exhausted, else None."""
    sp = machine.sp
    if sp is None or not machine.maps:
        return None
    stack = _stack_above(machine, address)
    if stack is None or not _belongs(sp, address, stack):
        return _jumped_over(record, machine, address, access, cite)
    supports = [cite, Cite("crash", "registers.sp", f"sp = {sp:#x}, {sp - address:+#x} from the fault address")]
    guard = machine.maps.at(address)
    main = stack.path == "[stack]"
    if guard is not None:
        supports.append(mapping_cite(guard, "the guard below the stack"))
    supports.append(mapping_cite(stack, f"the stack, {stack.size // 1024} KiB of it in use or reserved"))
    limit = record.limits.stack if record.limits else None
    if main:
        if limit is not None and stack.size + GUARD_GAP + FRAME_REACH < limit:
            # Below a main stack that still had room to grow, an unmapped address is no overflow.
            return None
        if limit is not None:
            supports.append(Cite("crash", "limits.stack", f"the soft limit (ulimit -s) is {limit // 1024} KiB"))
    through_sp = _through_stack_pointer(machine, address)
    if through_sp:
        supports.append(
            Cite("crash", "code", f"{machine.instruction_bytes()} addresses memory through the stack pointer")
        )
    return MechanismReading(
        Mechanism.STACK_OVERFLOW,
        Address(address),
        access,
        machine.operand_near(address, access),
        mapping=guard.text if guard else None,
        # Without a guard or a limit in the record nothing shows that the stack could not have grown on.
        sp_at_guard=through_sp and sp <= stack.start + PAGE and (guard is not None or limit is not None),
        supports=tuple(supports),
    )


def _jumped_over(
    record: CrashRecord, machine: Machine, address: int, access: str | None, cite: Cite
) -> MechanismReading | None:
    """One call moved the stack pointer below all that the main stack may become (a local array or alloca of megabytes)
    and then touched memory between the two."""
    sp, limit = machine.sp, record.limits.stack if record.limits else None
    stack = machine.maps.above(address)
    if sp is None or limit is None or stack is None or stack.path != "[stack]":
        return None
    if machine.maps.at(address) is not None or machine.maps.at(sp) is not None:
        return None
    if not (stack.start - LARGEST_FRAME <= sp < stack.end - limit and sp - RED_ZONE <= address < stack.start):
        return None
    size = f"{(stack.start - sp) / (1 << 20):.1f} MiB"
    return MechanismReading(
        Mechanism.STACK_OVERFLOW,
        Address(address),
        access,
        machine.operand_near(address, access),
        plain=f"one call wanted {size} of it",
        supports=(
            cite,
            Cite("crash", "registers.sp", f"sp = {sp:#x}, {size} below the stack"),
            mapping_cite(stack, "the stack"),
            Cite("crash", "limits.stack", f"the soft limit (ulimit -s) is {limit // 1024} KiB"),
        ),
    )


def _stack_above(machine: Machine, address: int) -> Mapping | None:
    """The writable mapping that begins where the guard (or, for the main stack, the hole) around `address` ends.

    A thread's stack without a guard below it is none: any wild pointer could land there.
    """
    here = machine.maps.at(address)
    if here is not None:
        if here.accessible:
            return None
        above = machine.maps.at(here.end)
    else:
        above = machine.maps.above(address)
        if above is not None and above.path != "[stack]":
            return None
    return above if above is not None and above.permissions[:2] == "rw" else None


def _belongs(sp: int, address: int, stack: Mapping) -> bool:
    """The stack pointer is at the stack's low end, not somewhere up in a healthy stack, and near the fault."""
    return stack.start - GUARD_GAP <= sp < stack.start + FRAME_REACH and abs(sp - address) <= FRAME_REACH + GUARD_GAP


def _through_stack_pointer(machine: Machine, address: int) -> bool:
    if machine.x86 is not None:
        operand = machine.operand_near(address, None)
        return operand is not None and (operand.text.startswith("[rsp") or operand.text.startswith("[rbp"))
    if machine.arm is not None and machine.arm.operand is not None:
        return machine.arm.operand.base in ("sp", "x29")
    return False

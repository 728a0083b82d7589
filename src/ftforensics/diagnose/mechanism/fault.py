"""SIGSEGV from the hardware: page faults and general protection."""

from __future__ import annotations

from ftforensics.diagnose.mechanism.machine import NULL_LIMIT, Machine, is_canonical, mapping_cite
from ftforensics.diagnose.mechanism.origin import SI_KERNEL
from ftforensics.diagnose.mechanism.stack_limit import read_stack_overflow
from ftforensics.model.basics import Address, Cite, Gap
from ftforensics.model.crash import CrashRecord, Signal
from ftforensics.model.mechanism import Mechanism, MechanismReading, Uncovered

TRAP_STACK_SEGMENT, TRAP_GENERAL_PROTECTION = 12, 13
# x86 page fault error code (Intel SDM vol. 3, 4.7)
_WRITE, _FETCH = 1 << 1, 1 << 4
# aarch64 ESR_EL1 (DDI 0487, D24.2.40): exception class, and "write, not read" of a data abort
_INSTRUCTION_ABORT, _DATA_ABORT, _WNR = 0x20, 0x24, 1 << 6


def read_fault(record: CrashRecord, machine: Machine) -> MechanismReading:
    signal = record.signal
    assert signal is not None
    if machine.is_x86 and (signal.trap == TRAP_GENERAL_PROTECTION or signal.code == SI_KERNEL):
        return read_general_protection(signal, machine)
    if signal.address is None:
        return MechanismReading(unknown=(Gap("crash", "the record holds no fault address"),))
    address = int(signal.address)
    access = _access(signal, machine)
    cite = Cite("crash", "signal.address", f"{signal.code_name or 'SIGSEGV'}: {_verb(access)} {signal.address}")
    if access == "exec":
        return _call(signal.address, machine, cite)
    overflow = read_stack_overflow(record, machine, address, access, cite)
    if overflow is not None:
        return overflow
    return _data(signal.address, access, machine, cite)


def _data(address: Address, access: str | None, machine: Machine, cite: Cite) -> MechanismReading:
    operand = machine.operand_near(address, access)
    supports = [cite]
    if operand is not None:
        supports.append(
            Cite("crash", "code", f"{machine.instruction_bytes()} touches {operand.text} = {operand.address}")
        )
    if machine.sp is not None and machine.maps and machine.maps.at(machine.sp) is None:
        supports.append(
            Cite("crash", "registers.sp", f"the stack pointer, {machine.sp:#x}, points into no mapping itself")
        )
    mapping = machine.maps.at(address)
    unknown: list[Gap] = []
    word: Mechanism | None
    if access not in ("read", "write"):
        word = None
        unknown.append(Gap("crash", "neither the error code nor the instruction says whether it was a read or a write"))
    elif address < NULL_LIMIT:
        word = Mechanism.NULL_READ if access == "read" else Mechanism.NULL_WRITE
        supports += machine.near_zero(operand)
    elif access == "write" and mapping is not None and mapping.accessible and mapping.permissions[1] != "w":
        word = Mechanism.WRITE_TO_READONLY
        supports.append(mapping_cite(mapping, "the page cannot be written"))
    else:
        word = Mechanism.WILD_READ if access == "read" else Mechanism.WILD_WRITE
        supports.append(_where(address, machine))
        if address > (1 << 64) - NULL_LIMIT:
            supports.append(
                Cite("crash", "signal.address", f"{address - (1 << 64)} seen as signed: a null pointer minus an offset")
            )
    against: tuple[Cite, ...] = ()
    if mapping is not None and _allows(mapping.permissions, access):
        # The mapping may have changed between fault and record (another thread, mprotect), or the page is special.
        against = (mapping_cite(mapping, "the mapping as recorded allows this access"),)
    if not machine.maps:
        unknown.append(Gap("maps", "the mappings were not recorded"))
    return MechanismReading(
        word,
        address,
        access,
        operand,
        mapping=mapping.text if mapping else None,
        supports=tuple(supports),
        against=against,
        unknown=tuple(unknown),
    )


def _call(address: Address, machine: Machine, cite: Cite) -> MechanismReading:
    mapping = machine.maps.at(address)
    if address < NULL_LIMIT:
        word, supports = Mechanism.NULL_CALL, [cite]
    elif mapping is not None and mapping.accessible:
        word, supports = Mechanism.EXECUTE_DATA, [cite, mapping_cite(mapping, "the page holds data, not code")]
    else:
        word, supports = Mechanism.WILD_CALL, [cite, _where(address, machine)]
    against: tuple[Cite, ...] = ()
    if mapping is not None and mapping.permissions[2] == "x":
        against = (mapping_cite(mapping, "the mapping as recorded is executable"),)
    return MechanismReading(
        word, address, "exec", mapping=mapping.text if mapping else None, supports=tuple(supports), against=against
    )


def read_general_protection(signal: Signal, machine: Machine) -> MechanismReading:
    """#GP and #SS: the kernel reports address 0, which says nothing. The address comes from the instruction."""
    cite = Cite(
        "crash",
        "signal.code",
        f"{signal.code_name or 'SI_KERNEL'}, trap {signal.trap}: the CPU gave no address; 0 stands for none",
    )
    if machine.pc is not None and not is_canonical(machine.pc):
        text = f"the program counter {machine.pc:#x} is no address the CPU accepts"
        return MechanismReading(
            Mechanism.NON_CANONICAL, Address(machine.pc), "exec", supports=(cite, Cite("crash", "registers.pc", text))
        )
    for operand in machine.operands():
        if operand.address is not None and not is_canonical(operand.address):
            text = (
                f"{machine.instruction_bytes()} touches {operand.text} = {operand.address}, no address the CPU accepts"
            )
            access = operand.access if operand.access != "read-write" else "write"
            return MechanismReading(
                Mechanism.NON_CANONICAL, operand.address, access, operand, supports=(cite, Cite("crash", "code", text))
            )
    instruction = machine.x86
    if instruction is not None and instruction.target is not None:
        target = machine.registers.get(instruction.target)
        if target is not None and not is_canonical(target):
            text = f"it {instruction.flow}s through {instruction.target} = {target:#x}, no address the CPU accepts"
            return MechanismReading(
                Mechanism.NON_CANONICAL, Address(target), "exec", supports=(cite, Cite("crash", "code", text))
            )
    if instruction is not None and instruction.flow is not None and (loaded := _loaded_target(machine)) is not None:
        return loaded
    if instruction is not None and (instruction.privileged or instruction.trap == "int"):
        text = f"{machine.instruction_bytes()} is an instruction that only the kernel may execute"
        return MechanismReading(Mechanism.ILLEGAL_INSTRUCTION, supports=(cite, Cite("crash", "code", text)))
    return _unexplained_protection(machine, cite)


def _loaded_target(machine: Machine) -> MechanismReading | None:
    """A return, or a call or jump through memory: the operand itself is acceptable, so what was loaded from it is not
    (Intel SDM vol. 2, CALL, JMP, RET: #GP(0) if the target is non-canonical)."""
    assert machine.x86 is not None
    flow = machine.x86.flow
    source = next((operand for operand in machine.operands() if operand.access == "read"), None)
    if source is None or source.address is None:
        return None
    text = f"it {flow}s to what {source.text} = {source.address} held, which is no address the CPU accepts"
    value = machine.word_at(source.address)
    target = Address(value) if value is not None and not is_canonical(value) else None
    plain = f"{flow} through a value that cannot be an address"
    if flow == "return":
        plain = "return to a value that cannot be an address: the stack was overwritten"
    if target is not None:
        text += f": {target}"
    return MechanismReading(
        Mechanism.NON_CANONICAL,
        target,
        "exec",
        plain=plain,
        supports=(
            Cite("crash", "signal.code", "SI_KERNEL: the CPU gave no address; 0 stands for none"),
            Cite("crash", "code", f"{machine.instruction_bytes()}: {text}"),
        ),
    )


def _unexplained_protection(machine: Machine, cite: Cite) -> MechanismReading:
    instruction = machine.x86
    for operand in machine.operands():
        if (
            instruction is not None
            and instruction.alignment
            and operand.address is not None
            and operand.address % instruction.alignment
        ):
            text = (
                f"{machine.instruction_bytes()} needs an address that {instruction.alignment} divides: "
                f"{operand.text} = {operand.address}"
            )
            return MechanismReading(
                None,
                operand.address,
                operand.access,
                operand,
                plain=f"a vector access to {operand.address}, which is not aligned to {instruction.alignment} bytes",
                uncovered=Uncovered.MISALIGNED,
                supports=(cite, Cite("crash", "code", text)),
            )
    suspects = machine.noncanonical_registers()
    if instruction is not None and all(operand.address is not None for operand in machine.operands()):
        return MechanismReading(
            supports=(cite,),
            unknown=(
                Gap("crash", "the instruction's addresses are all acceptable: why the CPU refused it is not known"),
            ),
        )
    if suspects:
        # No instruction to decode, but a register no pointer can have: the usual reason, and not a certain one.
        name, value = suspects[0]
        return MechanismReading(
            Mechanism.NON_CANONICAL,
            None,
            supports=(cite, Cite("crash", f"registers.{name}", f"{name} = {value:#x} is no address the CPU accepts")),
            unknown=(
                Gap(
                    "crash",
                    "the faulting instruction was not recorded or not decoded, so which address it used is not known",
                ),
            ),
        )
    return MechanismReading(supports=(cite,), unknown=(Gap("crash", "the faulting instruction could not be decoded"),))


def _access(signal: Signal, machine: Machine) -> str | None:
    if signal.access is not None:
        return signal.access
    if machine.pc is not None and signal.address is not None and int(signal.address) == machine.pc:
        return "exec"
    if signal.error_code is not None:
        return "exec" if signal.error_code & _FETCH else "write" if signal.error_code & _WRITE else "read"
    if signal.esr is not None:
        kind = signal.esr >> 26 & 0x3F
        if kind == _INSTRUCTION_ABORT:
            return "exec"
        if kind == _DATA_ABORT:
            return "write" if signal.esr & _WNR else "read"
    operand = machine.operand_near(signal.address or 0, None)
    if operand is not None and operand.access in ("read", "write"):
        return operand.access
    return None


def _verb(access: str | None) -> str:
    return {"read": "read of", "write": "write to", "exec": "jump to"}.get(access or "", "access to")


def _allows(permissions: str, access: str | None) -> bool:
    return (access == "read" and permissions[0] == "r") or (access == "write" and permissions[1] == "w")


def _where(address: int, machine: Machine) -> Cite:
    mapping = machine.maps.at(address)
    if mapping is not None:
        return mapping_cite(mapping, "inside")
    if not machine.maps:
        return Cite("crash", "maps", "the mappings were not recorded")
    above = machine.maps.above(address)
    if above is None:
        return Cite("maps", "maps", "no mapping holds this address")
    return Cite("maps", "maps", f"no mapping holds this address; the next one above: {above.text}")

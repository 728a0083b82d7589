"""The stopped processor of a record: registers by name, the instruction at the pc, the mappings."""

from __future__ import annotations

from ftforensics.model.basics import Address, Cite
from ftforensics.model.crash import CrashRecord
from ftforensics.model.mechanism import Operand
from ftforensics.parsers import aarch64_instruction, x86_instruction
from ftforensics.parsers.proc_maps import AddressSpace, Mapping

NULL_LIMIT = 64 * 1024  # an address below it is a null pointer plus an offset; vm.mmap_min_addr keeps it unmapped
_SHOWN_BYTES = 15


class Machine:
    """Values at the moment of the fault. Everything that the record lacks is None or empty."""

    def __init__(self, record: CrashRecord) -> None:
        registers = record.registers
        self.arch = (registers.arch if registers else None) or (record.job.machine if record.job else None) or ""
        self.registers: dict[str, int] = {}
        if registers:
            self.registers = {entry.name.lower(): int(entry.value) for entry in registers.values}
        self.pc = int(registers.pc) if registers and registers.pc is not None else None
        self.sp = int(registers.sp) if registers and registers.sp is not None else None
        if self.sp is not None:
            self.registers.setdefault("rsp" if self.is_x86 else "sp", self.sp)
        self.maps = AddressSpace(record.maps or [])
        self.code = b""
        if record.code is not None and self.pc is not None:
            offset = self.pc - record.code.start
            if 0 <= offset < len(record.code.data):
                self.code = record.code.data[offset:]
        self.stack = record.stack
        self.x86 = x86_instruction.decode(self.code) if self.is_x86 and self.code else None
        self.arm = aarch64_instruction.decode(self.code) if self.is_aarch64 and self.code else None

    @property
    def is_x86(self) -> bool:
        return self.arch in ("x86_64", "amd64", "x86-64")

    @property
    def is_aarch64(self) -> bool:
        return self.arch in ("aarch64", "arm64")

    def operands(self) -> list[Operand]:
        """The memory operands of the instruction at the pc, explicit ones first."""
        if self.x86 is not None and self.pc is not None:
            values = {**self.registers, "rip": self.pc + self.x86.length}
            return [
                Operand(operand.text, _address(operand.address(values)), operand.access)
                for operand in self.x86.operands
            ]
        if self.arm is not None and self.arm.operand is not None:
            values = dict(self.registers)
            if self.pc is not None:
                values["pc"] = self.pc
            operand = self.arm.operand
            return [Operand(operand.text, _address(operand.address(values)), operand.access)]
        return []

    def operand_near(self, address: int, access: str | None) -> Operand | None:
        """The operand that touches `address`: a wide access that crosses a page faults some bytes behind its start."""
        fitting = [
            operand
            for operand in self.operands()
            if operand.address is not None
            and 0 <= address - operand.address < 64
            and (access not in ("read", "write") or operand.access is None or access in operand.access)
        ]
        return fitting[0] if fitting else None

    def word_at(self, address: int) -> int | None:
        """Eight bytes of the recorded stack. None where it does not reach, and for 0, which redaction writes too."""
        if self.stack is None:
            return None
        at = address - self.stack.start
        word = int.from_bytes(self.stack.data[at : at + 8], "little") if 0 <= at <= len(self.stack.data) - 8 else 0
        return word or None

    def instruction_bytes(self) -> str | None:
        if not self.code:
            return None
        length = self.x86.length if self.x86 else 4 if self.arm else _SHOWN_BYTES
        return self.code[:length].hex(" ")

    def near_zero(self, operand: Operand | None) -> list[Cite]:
        """The operand's registers that hold a null pointer: which pointer was null."""
        if operand is None:
            return []
        return [
            Cite("crash", f"registers.{name}", f"{name} = {value:#x}: the null pointer in {operand.text}")
            for name, value in self.registers.items()
            if value < NULL_LIMIT and name not in ("rip", "pc", "eflags", "pstate") and _names(operand.text, name)
        ]

    def noncanonical_registers(self) -> list[tuple[str, int]]:
        skipped = ("rip", "eflags", "cr2", "csgsfs", "err", "trapno", "oldmask", "pstate")
        return [
            (name, value) for name, value in self.registers.items() if name not in skipped and not is_canonical(value)
        ]


def is_canonical(address: int) -> bool:
    """x86-64: bits 47 to 63 are equal. With 5-level paging too, for programs that do not ask for more than 47 bits."""
    return address >> 47 in (0, 0x1FFFF)


def mapping_cite(mapping: Mapping, what: str) -> Cite:
    return Cite("maps", "maps", f"{what}: {mapping.text}")


def _address(value: int | None) -> Address | None:
    return None if value is None else Address(value)


def _names(text: str, register: str) -> bool:
    """Whether the operand text uses `register` as a whole word ("r8" is not in "[r8d]" nor "x1" in "[x10]")."""
    for part in text.strip("[]").replace("+", " ").replace("-", " ").replace("*", " ").replace(",", " ").split():
        if part.strip("[]:") == register:
            return True
    return False

"""One AArch64 instruction: the base register and offset of a load or store, and what kind of instruction it is.

Encodings after the Arm Architecture Reference Manual (DDI 0487), C4.1. Not run on hardware here, only against tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_MASK = (1 << 64) - 1


class LoadStore(msgspec.Struct, frozen=True):
    """[base, offset] or [base, index, lsl shift]. access: "read", "write" or "read-write" (atomics)."""

    base: str
    displacement: int = 0
    index: str | None = None
    shift: int = 0
    extend: str = "lsl"  # "lsl", "uxtw", "sxtw", "sxtx"
    access: str | None = None

    def address(self, registers: Mapping[str, int]) -> int | None:
        """The address, None when a register is missing from `registers`; the address of a literal needs "pc"."""
        if self.base not in registers:
            return None
        total = registers[self.base] + self.displacement
        if self.index is not None:
            value = 0 if self.index == "xzr" else registers.get(self.index)
            if value is None:
                return None
            if self.extend in ("uxtw", "sxtw"):
                value &= 0xFFFFFFFF
                if self.extend == "sxtw" and value >> 31:
                    value -= 1 << 32
            total += value << self.shift
        return total & _MASK

    @property
    def text(self) -> str:
        if self.index is not None:
            return f"[{self.base}, {self.index}, {self.extend} {self.shift}]"
        return f"[{self.base}, #{self.displacement:#x}]" if self.displacement else f"[{self.base}]"


class Instruction(msgspec.Struct, frozen=True):
    """flow: "call", "jump", "return" or None; trap: "udf" or "brk"."""

    operand: LoadStore | None = None
    flow: str | None = None
    trap: str | None = None


def decode(code: bytes) -> Instruction | None:
    """The instruction at the start of `code`; None when cut. Unknown encodings give an empty `Instruction`."""
    if len(code) < 4:
        return None
    word = int.from_bytes(code[:4], "little")
    if word >> 16 == 0:
        return Instruction(trap="udf")
    if word & 0xFFE0001F == 0xD4200000:
        return Instruction(trap="brk")
    if word & 0xFC000000 in (0x94000000, 0x14000000):
        return Instruction(flow="call" if word >> 31 else "jump")
    if word & 0xFE1F0000 == 0xD61F0000 or word & 0xFE000000 == 0xD6000000:
        kind = word >> 21 & 3
        return Instruction(flow={0: "jump", 1: "call", 2: "return"}.get(kind))
    if word & 0x0A000000 == 0x08000000:
        return Instruction(operand=_load_store(word))
    return Instruction()


def _load_store(word: int) -> LoadStore | None:
    base = _register(word >> 5 & 31, stack=True)
    group = word >> 28 & 3
    vector = word >> 26 & 1
    if group == 1 and not word >> 24 & 1:
        offset = _signed(word >> 5 & 0x7FFFF, 19) * 4
        return LoadStore("pc", offset, access="read")
    if group == 2:  # pairs: signed 7-bit offset in units of the register size
        size = 4 << (word >> 30) if vector else 8 if word >> 31 else 4
        offset = 0 if word >> 23 & 3 == 1 else _signed(word >> 15 & 127, 7) * size
        return LoadStore(base, offset, access="read" if word >> 22 & 1 else "write")
    if group == 0:  # exclusive, ordered, compare-and-swap; structure loads of the vector unit have the same base field
        return LoadStore(base, access="read" if word >> 22 & 1 else "write")
    return _single(word, base, bool(vector))


def _single(word: int, base: str, vector: bool) -> LoadStore | None:
    option = word >> 22 & 3
    size = word >> 30 | (option >> 1) << 2 if vector else word >> 30
    if not vector and size == 3 and option == 2:
        return None  # prfm: a prefetch does not fault
    access = "read" if (option & 1 if vector else option != 0) else "write"
    if word >> 24 & 1:
        return LoadStore(base, (word >> 10 & 0xFFF) << size, access=access)
    if not word >> 21 & 1:
        # unscaled, post-index, unprivileged, pre-index; a post-indexed access goes to the base itself
        offset = 0 if word >> 10 & 3 == 1 else _signed(word >> 12 & 511, 9)
        return LoadStore(base, offset, access=access)
    if word >> 10 & 3 == 2:
        extend = {2: "uxtw", 3: "lsl", 6: "sxtw", 7: "sxtx"}.get(word >> 13 & 7)
        if extend is None:
            return None
        return LoadStore(
            base, 0, _register(word >> 16 & 31, stack=False), size if word >> 12 & 1 else 0, extend, access
        )
    if word >> 10 & 3 == 0:
        return LoadStore(base, access="read-write")  # ldadd, swp, ...
    return None  # pointer-authenticated loads change the base before use


def _register(number: int, *, stack: bool) -> str:
    if number == 31:
        return "sp" if stack else "xzr"
    return f"x{number}"


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value

"""One x86-64 instruction: which memory it touches, how, and what kind of instruction it is.

Not a disassembler: it knows what is needed to say "this read [rax+0x28]" from the bytes at the program counter, for
integer, x87, SSE, VEX and EVEX encodings (Intel SDM vol. 2, chapter 2 and appendix A). What it does not know it leaves
None, and never guesses an operand.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ftforensics.parsers.x86_features import evex_features, legacy_features, vex_features

_REGISTERS = (
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
)  # fmt: skip
_SEGMENTS = {0x26: "es", 0x2E: "cs", 0x36: "ss", 0x3E: "ds", 0x64: "fs", 0x65: "gs"}
_MASK = (1 << 64) - 1


class MemoryOperand(msgspec.Struct, frozen=True):
    """[segment:base+index*scale+displacement]. access: "read", "write" or "read-write".

    vector_index: a gather or scatter, whose addresses lie in a vector register that the record does not hold;
    implicit: not written in the instruction (push, call, ret, string instructions).
    """

    base: str | None = None
    index: str | None = None
    scale: int = 1
    displacement: int = 0
    segment: str | None = None
    access: str | None = None
    vector_index: bool = False
    implicit: bool = False

    def address(self, registers: Mapping[str, int]) -> int | None:
        """The 64-bit address, None when a part of it is unknown. `rip` of `registers`: the *next* instruction's."""
        if self.vector_index or self.segment in ("fs", "gs"):
            return None  # the bases of fs and gs are not among the saved registers
        total = self.displacement
        for name, factor in ((self.base, 1), (self.index, self.scale)):
            if name is None:
                continue
            if name not in registers:
                return None
            total += registers[name] * factor
        return total & _MASK

    @property
    def text(self) -> str:
        parts = [part for part in (self.base, f"{self.index}*{self.scale}" if self.index else None) if part]
        if self.vector_index:
            parts.append("vector index")
        inside = "+".join(parts)
        if self.displacement or not parts:
            sign = "-" if self.displacement < 0 else "+" if parts else ""
            inside += f"{sign}{abs(self.displacement):#x}"
        return f"{self.segment}:[{inside}]" if self.segment else f"[{inside}]"


class Instruction(msgspec.Struct, frozen=True):
    """length: bytes; flow: "call", "jump", "return" or None; stack: it pushes or pops; divides: div or idiv;
    privileged: only the kernel may (general protection in a user program); trap: "ud2", "int3" and the like, put there
    on purpose; alignment: bytes the operand must be aligned to, or the CPU faults; features: CPU flags it needs;
    target: the register that a call or jump goes through."""

    length: int
    operands: tuple[MemoryOperand, ...] = ()
    flow: str | None = None
    stack: bool = False
    divides: bool = False
    privileged: bool = False
    trap: str | None = None
    alignment: int | None = None
    features: tuple[str, ...] = ()
    target: str | None = None


class _End(Exception):
    """The bytes end inside the instruction, or it is none that we know. Never leaves this module."""


class _Bytes:
    def __init__(self, code: bytes) -> None:
        self.code = code[:15]  # the longest instruction the CPU accepts
        self.at = 0

    def next(self) -> int:
        if self.at >= len(self.code):
            raise _End
        self.at += 1
        return self.code[self.at - 1]

    def signed(self, size: int) -> int:
        if self.at + size > len(self.code):
            raise _End
        self.at += size
        return int.from_bytes(self.code[self.at - size : self.at], "little", signed=True)

    def skip(self, size: int) -> None:
        self.signed(size)


class _Prefixes:
    def __init__(self) -> None:
        self.segment: str | None = None
        self.operand16 = False
        self.address32 = False
        self.repeat = 0  # 0xF2 or 0xF3
        self.lock = False
        self.rex = 0


def decode(code: bytes) -> Instruction | None:
    """The instruction at the start of `code`; None when it is cut or unknown."""
    stream = _Bytes(code)
    try:
        return _decode(stream)
    except _End:
        return None


def _decode(stream: _Bytes) -> Instruction:
    prefixes = _Prefixes()
    opcode = stream.next()
    while True:
        if opcode in _SEGMENTS:
            prefixes.segment = (
                _SEGMENTS[opcode] if opcode in (0x64, 0x65) else None
            )  # the others mean nothing in 64-bit mode
        elif opcode == 0x66:
            prefixes.operand16 = True
        elif opcode == 0x67:
            prefixes.address32 = True
        elif opcode in (0xF2, 0xF3):
            prefixes.repeat = opcode
        elif opcode == 0xF0:
            prefixes.lock = True
        else:
            break
        opcode = stream.next()
    if 0x40 <= opcode <= 0x4F:
        prefixes.rex = opcode
        opcode = stream.next()
    if opcode in (0xC4, 0xC5):
        return _vex(stream, prefixes, opcode)
    if opcode == 0x62:
        return _evex(stream, prefixes)
    if opcode != 0x0F:
        return _one_byte(stream, prefixes, opcode)
    opcode = stream.next()
    if opcode == 0x38:
        return _three_byte(stream, prefixes, 2, stream.next())
    if opcode == 0x3A:
        return _three_byte(stream, prefixes, 3, stream.next())
    return _two_byte(stream, prefixes, opcode)


class _ModRM:
    """reg: the register or opcode extension field (3 bits); operand: None for a register operand."""

    def __init__(
        self,
        stream: _Bytes,
        prefixes: _Prefixes,
        *,
        disp8_scale: int = 1,
        vector_index: bool = False,
        x: int = -1,
        b: int = -1,
    ) -> None:
        x = x if x >= 0 else prefixes.rex >> 1 & 1
        b = b if b >= 0 else prefixes.rex & 1
        byte = stream.next()
        mode, self.reg, low = byte >> 6, byte >> 3 & 7, byte & 7
        self.operand: MemoryOperand | None = None
        self.register = _REGISTERS[low | b << 3]
        if mode == 3:
            return
        base: str | None = _REGISTERS[low | b << 3]
        index: str | None = None
        scale, displacement = 1, 0
        if low == 4:
            sib = stream.next()
            scale = 1 << (sib >> 6)
            number = (sib >> 3 & 7) | x << 3
            index = None if number == 4 or vector_index else _REGISTERS[number]
            base = _REGISTERS[(sib & 7) | b << 3]
            if sib & 7 == 5 and mode == 0:
                base, displacement = None, stream.signed(4)
        elif low == 5 and mode == 0:
            base, displacement = "rip", stream.signed(4)
        if mode == 1:
            displacement = stream.signed(1) * disp8_scale
        elif mode == 2:
            displacement = stream.signed(4)
        if prefixes.address32:
            raise _End  # 32-bit addressing in 64-bit code (x32) is not worth a wrong address
        self.operand = MemoryOperand(base, index, scale, displacement, prefixes.segment, None, vector_index)


def _finish(
    stream: _Bytes,
    modrm: _ModRM | None,
    access: str | None,
    *,
    extra: tuple[MemoryOperand, ...] = (),
    flow: str | None = None,
    stack: bool = False,
    divides: bool = False,
    privileged: bool = False,
    trap: str | None = None,
    alignment: int | None = None,
    features: tuple[str, ...] = (),
) -> Instruction:
    operands = extra
    if modrm is not None and modrm.operand is not None and access is not None:
        operands = (msgspec.structs.replace(modrm.operand, access=access), *extra)
    return Instruction(stream.at, operands, flow, stack, divides, privileged, trap, alignment, features)


_PUSH = MemoryOperand("rsp", displacement=-8, access="write", implicit=True)
_POP = MemoryOperand("rsp", access="read", implicit=True)
_SOURCE = MemoryOperand("rsi", access="read", implicit=True)
_TARGET = MemoryOperand("rdi", access="write", implicit=True)
_STRING = {
    0xA4: (_SOURCE, _TARGET), 0xA5: (_SOURCE, _TARGET), 0xAA: (_TARGET,), 0xAB: (_TARGET,),
    0xAC: (_SOURCE,), 0xAD: (_SOURCE,),
    0xA6: (_SOURCE, msgspec.structs.replace(_TARGET, access="read")),
    0xA7: (_SOURCE, msgspec.structs.replace(_TARGET, access="read")),
    0xAE: (msgspec.structs.replace(_TARGET, access="read"),), 0xAF: (msgspec.structs.replace(_TARGET, access="read"),),
}  # fmt: skip
# in, out, hlt, cli, sti and their string forms
_PRIVILEGED = {0x6C, 0x6D, 0x6E, 0x6F, 0xE4, 0xE5, 0xE6, 0xE7, 0xEC, 0xED, 0xEE, 0xEF, 0xF4, 0xFA, 0xFB}
# x87: (opcode, reg) that store
_X87_STORES = (
    {(0xD9, reg) for reg in (2, 3, 6, 7)} | {(0xDB, reg) for reg in (1, 2, 3, 7)}
    | {(0xDD, reg) for reg in (1, 2, 3, 6, 7)} | {(0xDF, reg) for reg in (1, 2, 3, 6, 7)}
)  # fmt: skip


def _one_byte(stream: _Bytes, prefixes: _Prefixes, opcode: int) -> Instruction:
    wide = 2 if prefixes.operand16 and not prefixes.rex & 8 else 4  # "Iz": immediates are at most 32 bits
    if opcode < 0x40:
        if opcode & 7 < 4:
            modrm = _ModRM(stream, prefixes)
            compare = opcode & 0x38 == 0x38
            return _finish(stream, modrm, "read" if opcode & 2 or compare else "read-write")
        if opcode & 7 == 4:
            stream.skip(1)
        elif opcode & 7 == 5:
            stream.skip(wide)
        else:
            raise _End
        return _finish(stream, None, None)
    if 0x50 <= opcode <= 0x57 or opcode == 0x9C:
        return _finish(stream, None, None, extra=(_PUSH,), stack=True)
    if 0x58 <= opcode <= 0x5F or opcode == 0x9D:
        return _finish(stream, None, None, extra=(_POP,), stack=True)
    if opcode in (0x68, 0x6A):
        stream.skip(4 if opcode == 0x68 else 1)
        return _finish(stream, None, None, extra=(_PUSH,), stack=True)
    if opcode in (0x69, 0x6B):
        modrm = _ModRM(stream, prefixes)
        stream.skip(wide if opcode == 0x69 else 1)
        return _finish(stream, modrm, "read")
    if opcode in (0x80, 0x81, 0x83):
        modrm = _ModRM(stream, prefixes)
        stream.skip(wide if opcode == 0x81 else 1)
        return _finish(stream, modrm, "read" if modrm.reg == 7 else "read-write")
    if opcode in (0xC0, 0xC1):
        modrm = _ModRM(stream, prefixes)
        stream.skip(1)
        return _finish(stream, modrm, "read-write")
    if opcode in (0xC6, 0xC7):
        modrm = _ModRM(stream, prefixes)
        stream.skip(1 if opcode == 0xC6 else wide)
        return _finish(stream, modrm, "write")
    if opcode in (0xF6, 0xF7):
        return _group3(stream, prefixes, 1 if opcode == 0xF6 else wide)
    if opcode in (0xFE, 0xFF):
        return _group5(stream, _ModRM(stream, prefixes), opcode)
    if opcode in _STRING:
        return _finish(stream, None, None, extra=_STRING[opcode])
    if opcode in _PRIVILEGED:
        stream.skip(1 if 0xE4 <= opcode <= 0xE7 else 0)
        return _finish(stream, None, None, privileged=True)
    simple = {
        0x63: "read", 0x84: "read", 0x85: "read", 0x86: "read-write", 0x87: "read-write", 0x88: "write", 0x89: "write",
        0x8A: "read", 0x8B: "read", 0x8C: "write", 0x8D: None, 0x8E: "read", 0x8F: "write",
        0xD0: "read-write", 0xD1: "read-write", 0xD2: "read-write", 0xD3: "read-write",
    }  # fmt: skip
    if opcode in simple:
        return _finish(stream, _ModRM(stream, prefixes), simple[opcode])
    if 0xD8 <= opcode <= 0xDF:
        modrm = _ModRM(stream, prefixes)
        return _finish(stream, modrm, "write" if (opcode, modrm.reg) in _X87_STORES else "read")
    return _control_flow(stream, prefixes, opcode, wide)


def _group3(stream: _Bytes, prefixes: _Prefixes, immediate: int) -> Instruction:
    modrm = _ModRM(stream, prefixes)
    if modrm.reg < 2:
        stream.skip(immediate)
    return _finish(stream, modrm, "read-write" if modrm.reg in (2, 3) else "read", divides=modrm.reg >= 6)


def _group5(stream: _Bytes, modrm: _ModRM, opcode: int) -> Instruction:
    if modrm.reg < 2:
        return _finish(stream, modrm, "read-write")
    if opcode == 0xFE or modrm.reg == 7:
        raise _End
    target = None if modrm.operand else modrm.register
    if modrm.reg in (2, 3):
        call = _finish(stream, modrm, "read", extra=(_PUSH,), flow="call", stack=True)
        return msgspec.structs.replace(call, target=target)
    if modrm.reg in (4, 5):
        return msgspec.structs.replace(_finish(stream, modrm, "read", flow="jump"), target=target)
    return _finish(stream, modrm, "read", extra=(_PUSH,), stack=True)


def _control_flow(stream: _Bytes, prefixes: _Prefixes, opcode: int, wide: int) -> Instruction:
    if opcode == 0xE8:
        stream.skip(4)
        return _finish(stream, None, None, extra=(_PUSH,), flow="call", stack=True)
    if opcode in (0xE9, 0xEB) or 0x70 <= opcode <= 0x7F or 0xE0 <= opcode <= 0xE3:
        stream.skip(4 if opcode == 0xE9 else 1)
        return _finish(stream, None, None, flow="jump")
    if opcode in (0xC2, 0xC3):
        stream.skip(2 if opcode == 0xC2 else 0)
        return _finish(stream, None, None, extra=(_POP,), flow="return", stack=True)
    if opcode == 0xC9:
        return _finish(stream, None, None, extra=(MemoryOperand("rbp", access="read", implicit=True),))
    if opcode in (0xCC, 0xCD):
        stream.skip(opcode - 0xCC)
        return _finish(stream, None, None, trap="int3" if opcode == 0xCC else "int")
    if opcode in (0xA8, 0xA9):
        stream.skip(1 if opcode == 0xA8 else wide)
        return _finish(stream, None, None)
    if 0xB0 <= opcode <= 0xBF:
        stream.skip(1 if opcode < 0xB8 else 8 if prefixes.rex & 8 else wide)
        return _finish(stream, None, None)
    if 0x90 <= opcode <= 0x99 or opcode in (0x9B, 0x9E, 0x9F, 0xF5, 0xF8, 0xF9, 0xFC, 0xFD):
        return _finish(stream, None, None)
    raise _End


_NO_MODRM_0F = (
    {0x05, 0x06, 0x07, 0x08, 0x09, 0x0B, 0x0E, 0x77, 0xA0, 0xA1, 0xA2, 0xA8, 0xA9, 0xAA}
    | set(range(0x30, 0x38)) | set(range(0xC8, 0xD0))
)  # fmt: skip
_IMMEDIATE_0F = {0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6}
_WRITES_0F = {0x11, 0x13, 0x17, 0x29, 0x2B, 0x7F, 0xC3, 0xD6, 0xE7} | set(range(0x90, 0xA0))
_READ_WRITES_0F = {0xAB, 0xB3, 0xBB, 0xB0, 0xB1, 0xC0, 0xC1, 0xA4, 0xA5, 0xAC, 0xAD}
_HINTS_0F = {0x0D} | set(range(0x18, 0x20))  # prefetches and long nops touch nothing that can fault
_PRIVILEGED_0F = {0x06, 0x08, 0x09, 0x20, 0x21, 0x22, 0x23, 0x30, 0x32, 0x35, 0x07}


def _two_byte(stream: _Bytes, prefixes: _Prefixes, opcode: int) -> Instruction:
    features = legacy_features(1, opcode, prefixes.repeat, prefixes.operand16)
    if opcode == 0x0B:
        return _finish(stream, None, None, trap="ud2")
    if 0x80 <= opcode <= 0x8F:
        stream.skip(4)
        return _finish(stream, None, None, flow="jump")
    if opcode in _NO_MODRM_0F:
        push = opcode in (0xA0, 0xA8)
        pop = opcode in (0xA1, 0xA9)
        extra = (_PUSH,) if push else (_POP,) if pop else ()
        return _finish(stream, None, None, extra=extra, stack=push or pop, privileged=opcode in _PRIVILEGED_0F)
    if opcode == 0xB9:
        prefixes.address32 = False  # clang's ubsantrap is `67 0f b9 40 NN`; ud1 touches no memory, whatever it names
    modrm = _ModRM(stream, prefixes)
    if opcode in _IMMEDIATE_0F:
        stream.skip(1)
    if opcode in (0xB9, 0xFF):
        return _finish(stream, None, None, trap="ud1" if opcode == 0xB9 else "ud0")
    if opcode == 0xC7 and modrm.operand is None and modrm.reg in (6, 7):
        features = ("rdrand",) if modrm.reg == 6 else ("rdseed",)
    access = _access_0f(opcode, prefixes, modrm.reg)
    aligned = opcode in (0x28, 0x29, 0x2B) or (opcode in (0x6F, 0x7F, 0xE7) and prefixes.operand16)
    if not prefixes.repeat and (0x51 <= opcode <= 0x5F or opcode in (0xC2, 0xC6, 0x14, 0x15)):
        aligned = True  # packed SSE arithmetic with a memory operand
    if prefixes.operand16 and (0x60 <= opcode <= 0x6D or 0xD0 <= opcode <= 0xFE) and opcode not in (0xD6, 0xE7):
        aligned = True
    return _finish(
        stream, modrm, access, alignment=16 if aligned else None, features=features, privileged=opcode in _PRIVILEGED_0F
    )


def _access_0f(opcode: int, prefixes: _Prefixes, reg: int) -> str | None:
    if opcode in _HINTS_0F:
        return None
    if opcode in _WRITES_0F:
        return "write"
    if opcode in _READ_WRITES_0F or (opcode == 0xBA and reg > 4) or (opcode == 0xC7 and reg == 1):
        return "read-write"
    if opcode == 0x7E:
        return "read" if prefixes.repeat == 0xF3 else "write"
    if opcode == 0xAE:
        return "write" if reg in (0, 3, 4, 6) else "read"
    if opcode == 0xC7:
        return "write" if reg in (4, 5) else "read"  # xsavec, xsaves
    return "read"


def _three_byte(stream: _Bytes, prefixes: _Prefixes, table: int, opcode: int) -> Instruction:
    features = legacy_features(table, opcode, prefixes.repeat, prefixes.operand16)
    modrm = _ModRM(stream, prefixes)
    if table == 3:
        stream.skip(1)
        access = "write" if 0x14 <= opcode <= 0x17 else "read"
    else:
        access = "write" if (opcode == 0xF1 and prefixes.repeat != 0xF2) or opcode in (0xF8, 0xF9) else "read"
    return _finish(stream, modrm, access, features=features)


_VECTOR_STORES = {
    1: {0x11, 0x13, 0x17, 0x29, 0x2B, 0x7F, 0xD6, 0xE7},
    2: {0x2E, 0x2F, 0x8E},
    3: {0x14, 0x15, 0x16, 0x17, 0x19, 0x39, 0x1B, 0x3B, 0x1D},
}
_VECTOR_IMMEDIATES_0F = {0x70, 0x71, 0x72, 0x73, 0xC2, 0xC4, 0xC5, 0xC6}


def _vector_access(table: int, opcode: int, pp: int) -> str:
    if table == 1 and opcode == 0x7E:
        return "read" if pp == 2 else "write"
    if table == 1 and opcode == 0xAE:
        return "write"  # vstmxcsr; vldmxcsr (/2) is told apart by its caller
    return "write" if opcode in _VECTOR_STORES.get(table, ()) else "read"


def _vex(stream: _Bytes, prefixes: _Prefixes, lead: int) -> Instruction:
    first = stream.next()
    x = b = 0
    table, second = 1, first
    if lead == 0xC4:
        x, b = (first >> 6 & 1) ^ 1, (first >> 5 & 1) ^ 1
        table = first & 0x1F
        second = stream.next()
    pp, length = second & 3, second >> 2 & 1
    opcode = stream.next()
    features = vex_features(table, opcode, pp, length)
    if table == 1 and opcode == 0x77:
        return _finish(stream, None, None, features=features)
    gather = table == 2 and 0x90 <= opcode <= 0x93
    tile = table == 2 and opcode == 0x4B  # tileloadd, tilestored: rows at base + row * index
    modrm = _ModRM(stream, prefixes, vector_index=gather or tile, x=x, b=b)
    if table == 3 or (table == 1 and opcode in _VECTOR_IMMEDIATES_0F):
        stream.skip(1)
    access = _vector_access(table, opcode, pp)
    if table == 1 and opcode == 0xAE and modrm.reg == 2:
        access = "read"
    if table == 2 and ((opcode == 0x4B and pp == 2) or (opcode == 0x49 and pp == 1)):
        access = "write"
    aligned = table == 1 and (opcode in (0x28, 0x29, 0x2B, 0xE7) or (opcode in (0x6F, 0x7F) and pp == 1))
    return _finish(stream, modrm, access, alignment=(32 if length else 16) if aligned else None, features=features)


# EVEX memory operands narrower than the vector, by opcode (SDM vol. 2, 2.7.5 and the instructions' tuple types).
_FIXED_SIZE = {
    (1, 0x12): 8, (1, 0x13): 8, (1, 0x16): 8, (1, 0x17): 8, (1, 0xD6): 8, (1, 0xC4): 2,
    (2, 0x18): 4, (2, 0x19): 8, (2, 0x1A): 16, (2, 0x1B): 32, (2, 0x58): 4, (2, 0x59): 8, (2, 0x5A): 16, (2, 0x5B): 32,
    (2, 0x78): 1, (2, 0x79): 2, (3, 0x14): 1, (3, 0x15): 2, (3, 0x20): 1, (3, 0x21): 4, (3, 0x0A): 4, (3, 0x0B): 8,
    (3, 0x18): 16, (3, 0x19): 16, (3, 0x38): 16, (3, 0x39): 16, (3, 0x1A): 32, (3, 0x1B): 32, (3, 0x3A): 32,
    (3, 0x3B): 32,
}  # fmt: skip
_ONE_ELEMENT = (
    {(1, opcode) for opcode in (0x2A, 0x6E, 0x7B)}
    | {(2, opcode) for opcode in (0x2D, 0x43, 0x4D, 0x4F, 0x62, 0x63, 0x88, 0x89, 0x8A, 0x8B, 0xCB, 0xCD)}
    | {(2, opcode) for opcode in range(0x99, 0xC0, 2) if opcode & 15 >= 9}
    | {(3, opcode) for opcode in (0x16, 0x22, 0x27, 0x51, 0x55, 0x57, 0x67)}
)
# vpmovsx, vpmovzx, vpmovus, vpmovs, vpmov: the memory side is this fraction of the vector
_EXTENSIONS = {0: 2, 1: 4, 2: 8, 3: 2, 4: 4, 5: 2}


def _memory_size(table: int, opcode: int, pp: int, element: int, vector: int) -> int:
    """Bytes of the memory operand, by which an EVEX instruction's 8-bit displacement is multiplied."""
    if table == 1 and opcode == 0x12 and pp in (2, 3):
        return vector if pp == 2 or vector > 16 else 8
    if table == 1 and opcode == 0x16 and pp == 2:
        return vector
    if (table, opcode) in _FIXED_SIZE:
        return _FIXED_SIZE[table, opcode]
    if (table, opcode) in _ONE_ELEMENT:
        return element
    if table == 1 and opcode == 0x7E:
        return 8 if pp == 2 else element
    if table == 1 and opcode in (0x2E, 0x2F):
        return 8 if pp == 1 else 4
    if table in (1, 5) and pp >= 2 and (opcode in (0x10, 0x11, 0x2C, 0x2D, 0x51, 0xC2) or 0x58 <= opcode <= 0x5F):
        return (8 if pp == 3 else 4) if table == 1 else 2  # scalars
    if table == 1 and opcode in (0xD1, 0xD2, 0xD3, 0xE1, 0xE2, 0xF1, 0xF2, 0xF3):
        return 16  # the shift count
    halves = {(1, 0x5A, 0), (1, 0xE6, 2), (2, 0x13, 1), (3, 0x1D, 1)}
    if (table, opcode, pp) in halves:
        return vector // 2
    if (
        table == 2
        and ((pp == 2 and opcode >> 4 in (1, 2, 3)) or (pp == 1 and opcode >> 4 in (2, 3)))
        and opcode & 15 < 6
    ):
        return vector // _EXTENSIONS[opcode & 15]
    return vector


def _evex(stream: _Bytes, prefixes: _Prefixes) -> Instruction:
    p0, p1, p2 = stream.next(), stream.next(), stream.next()
    if p0 & 0x08 or not p1 & 0x04:
        raise _End  # fixed bits: these bytes are no EVEX instruction (APX uses them, which no CPU here has)
    table, pp, wide = p0 & 7, p1 & 3, p1 >> 7
    length, broadcast = p2 >> 5 & 3, p2 >> 4 & 1
    x, b = (p0 >> 6 & 1) ^ 1, (p0 >> 5 & 1) ^ 1
    opcode = stream.next()
    scalar = table in (1, 5) and pp >= 2 and (opcode in (0x10, 0x11, 0x2A, 0x2C, 0x2D, 0x51) or 0x58 <= opcode <= 0x5F)
    gather = table == 2 and (0x90 <= opcode <= 0x93 or 0xA0 <= opcode <= 0xA3)
    element = 8 if wide else 4
    unit = element if broadcast or gather else _memory_size(table, opcode, pp, element, 16 << min(length, 2))
    modrm = _ModRM(stream, prefixes, disp8_scale=unit, vector_index=gather, x=x, b=b)
    if table == 3 or (table == 1 and opcode in _VECTOR_IMMEDIATES_0F):
        stream.skip(1)
    access = _vector_access(table, opcode, pp)
    narrowing = table == 2 and pp == 2 and (0x10 <= opcode <= 0x15 or 0x20 <= opcode <= 0x25 or 0x30 <= opcode <= 0x35)
    if table == 2 and (narrowing or 0xA0 <= opcode <= 0xA3 or opcode in (0x63, 0x8A, 0x8B)):
        access = "write"
    aligned = table == 1 and (opcode in (0x28, 0x29, 0x2B, 0xE7) or (opcode in (0x6F, 0x7F) and pp == 1))
    return _finish(
        stream,
        modrm,
        access,
        alignment=16 << min(length, 2) if aligned else None,
        features=evex_features(table, opcode, pp, length, scalar),
    )

"""Loads and stores of AArch64: encodings as the assembler gives them (binutils 2.40); never run on hardware here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers.aarch64_instruction import decode

REGISTERS = {"x0": 0x1000, "x1": 3, "x2": 0xFFFFFFFF, "sp": 0x7000, "x29": 0x7100, "pc": 0x400000}


@pytest.mark.parametrize(
    ("word", "text", "access", "address"),
    [
        (0xF9401401, "[x0, #0x28]", "read", 0x1028),  # ldr x1, [x0, #40]
        (0xB9000001, "[x0]", "write", 0x1000),  # str w1, [x0]
        (0x39400C01, "[x0, #0x3]", "read", 0x1003),  # ldrb w1, [x0, #3]
        (0xF81F8001, "[x0, #-0x8]", "write", 0xFF8),  # stur x1, [x0, #-8]
        (0xF8410401, "[x0]", "read", 0x1000),  # ldr x1, [x0], #16: the base itself
        (0xF8410C01, "[x0, #0x10]", "read", 0x1010),  # ldr x1, [x0, #16]!
        (0xA9BF7BFD, "[sp, #-0x10]", "write", 0x6FF0),  # stp x29, x30, [sp, #-16]!
        (0xA8C17BFD, "[sp]", "read", 0x7000),  # ldp x29, x30, [sp], #16
        (0xF8617803, "[x0, x1, lsl 3]", "read", 0x1018),  # ldr x3, [x0, x1, lsl #3]
        (0xF862D803, "[x0, x2, sxtw 3]", "read", 0xFF8),  # ldr x3, [x0, w2, sxtw #3]
        (0x3DC00400, "[x0, #0x10]", "read", 0x1010),  # ldr q0, [x0, #16]
        (0x3D800400, "[x0, #0x10]", "write", 0x1010),  # str q0, [x0, #16]
        (0x58000041, "[pc, #0x8]", "read", 0x400008),  # ldr x1, pc+8
        (0xB8200041, "[x2]", "read-write", 0xFFFFFFFF),  # ldadd w0, w1, [x2]
        (0x885FFC01, "[x0]", "read", 0x1000),  # ldaxr w1, [x0]
        (0x4C407000, "[x0]", "read", 0x1000),  # ld1 {v0.16b}, [x0]
    ],
)
def test_operands(word: int, text: str, access: str, address: int) -> None:
    instruction = decode(word.to_bytes(4, "little"))
    assert instruction is not None and instruction.operand is not None
    operand = instruction.operand
    assert (operand.text, operand.access, operand.address(REGISTERS)) == (text, access, address)


@pytest.mark.parametrize(
    ("word", "flow", "trap"),
    [
        (0x94000004, "call", None),  # bl
        (0x14000004, "jump", None),  # b
        (0xD63F0020, "call", None),  # blr x1
        (0xD61F0020, "jump", None),  # br x1
        (0xD65F03C0, "return", None),  # ret
        (0x00000000, None, "udf"),
        (0xD4207D00, None, "brk"),  # brk #1000, what __builtin_trap gives
        (0x8B020020, None, None),  # add x0, x1, x2
        (0xF9800000, None, None),  # prfm: a prefetch does not fault
    ],
)
def test_kinds(word: int, flow: str | None, trap: str | None) -> None:
    instruction = decode(word.to_bytes(4, "little"))
    assert instruction is not None
    assert (instruction.flow, instruction.trap, instruction.operand) == (flow, trap, None)


@given(st.binary(max_size=8))
def test_any_bytes(code: bytes) -> None:
    instruction = decode(code)
    assert (instruction is None) == (len(code) < 4)
    if instruction is not None and instruction.operand is not None:
        instruction.operand.address(REGISTERS)

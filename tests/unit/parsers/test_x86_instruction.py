"""Memory operands of x86-64 instructions: tables by hand, and every instruction of a real library against objdump."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers.x86_instruction import decode

REGISTERS = {"rax": 0x1000, "rcx": 2, "rbx": 0x28, "rsp": 0x7FFD0000, "rbp": 0x7FFD0100, "rip": 0x400010, "r12": 5}


@pytest.mark.parametrize(
    ("code", "text", "access", "address"),
    [
        ("48 8b 40 28", "[rax+0x28]", "read", 0x1028),  # mov rax,[rax+0x28]
        ("89 03", "[rbx]", "write", 0x28),  # mov [rbx],eax
        ("c6 00 01", "[rax]", "write", 0x1000),  # mov byte [rax],1
        ("48 8b 44 8b f8", "[rbx+rcx*4-0x8]", "read", 0x28),  # mov rax,[rbx+rcx*4-8]
        ("48 8b 05 10 00 00 00", "[rip+0x10]", "read", 0x400020),
        ("f6 05 10 00 00 00 01", "[rip+0x10]", "read", 0x400020),  # test byte [rip+0x10],1
        ("41 8b 04 24", "[r12]", "read", 5),  # r12 as base needs a SIB byte
        ("8b 45 00", "[rbp]", "read", 0x7FFD0100),  # rbp as base needs a displacement
        ("8b 04 25 10 00 00 00", "[0x10]", "read", 0x10),
        ("64 48 8b 04 25 28 00 00 00", "fs:[0x28]", "read", None),  # the base of fs is not recorded
        ("83 00 01", "[rax]", "read-write", 0x1000),  # add dword [rax],1
        ("83 38 01", "[rax]", "read", 0x1000),  # cmp dword [rax],1
        ("f0 48 0f b1 0b", "[rbx]", "read-write", 0x28),  # lock cmpxchg [rbx],rcx
        ("0f 29 40 10", "[rax+0x10]", "write", 0x1010),  # movaps [rax+0x10],xmm0
        ("c5 fc 11 00", "[rax]", "write", 0x1000),  # vmovups [rax],ymm0
        ("c4 e2 7d 18 40 04", "[rax+0x4]", "read", 0x1004),  # vbroadcastss ymm0,[rax+4]
        ("62 f1 7c 48 10 40 01", "[rax+0x40]", "read", 0x1040),  # vmovups zmm0,[rax+0x40]: disp8 counts 64
        ("62 f2 7d 48 18 40 02", "[rax+0x8]", "read", 0x1008),  # vbroadcastss zmm0,[rax+8]: disp8 counts 4
        ("62 f2 fd 48 92 04 08", "[rax+vector index]", "read", None),  # vgatherqps
    ],
)
def test_operands(code: str, text: str, access: str, address: int | None) -> None:
    instruction = decode(bytes.fromhex(code))
    assert instruction is not None and instruction.length == len(bytes.fromhex(code))
    (operand,) = instruction.operands
    assert (operand.text, operand.access, operand.address(REGISTERS)) == (text, access, address)


def test_stack_and_string_instructions_have_operands_too() -> None:
    push = decode(b"\x55")
    call = decode(bytes.fromhex("e8 00 00 00 00"))
    ret = decode(b"\xc3")
    copy = decode(bytes.fromhex("f3 a4"))
    assert push and call and ret and copy
    assert [(o.text, o.access) for o in push.operands] == [("[rsp-0x8]", "write")]
    assert (call.flow, call.operands) == ("call", push.operands)
    assert (ret.flow, ret.operands[0].access) == ("return", "read")
    assert [(o.text, o.access) for o in copy.operands] == [("[rsi]", "read"), ("[rdi]", "write")]


@pytest.mark.parametrize("code", ["0f 0b", "cc", "0f b9 00", "0f ff 00", "67 0f b9 40 0b"])
def test_traps(code: str) -> None:
    instruction = decode(bytes.fromhex(code))
    assert instruction is not None and instruction.trap


@pytest.mark.parametrize("code", ["f4", "fa", "ec", "0f 30", "0f 20 c0", "0f 22 d8"])
def test_privileged(code: str) -> None:
    instruction = decode(bytes.fromhex(code))
    assert instruction is not None and instruction.privileged


@pytest.mark.parametrize(
    ("code", "divides"), [("f7 f9", True), ("48 f7 75 f8", True), ("f7 e1", False), ("f7 d9", False)]
)
def test_divisions(code: str, divides: bool) -> None:
    instruction = decode(bytes.fromhex(code))
    assert instruction is not None and instruction.divides is divides


@pytest.mark.parametrize(
    ("code", "features"),
    [
        ("62 f1 7c 48 58 c1", ("avx512f",)),  # vaddps zmm
        ("62 f1 7c 28 58 c1", ("avx512f", "avx512vl")),  # vaddps ymm, EVEX
        ("62 f1 7d 48 fc c1", ("avx512f", "avx512bw")),  # vpaddb zmm
        ("62 f2 75 48 50 c2", ("avx512f", "avx512_vnni")),  # vpdpbusd zmm
        ("62 f2 76 48 52 c2", ("avx512f", "avx512_bf16")),  # vdpbf16ps zmm
        ("62 f5 7c 48 58 c1", ("avx512f", "avx512_fp16")),  # vaddph zmm
        ("c4 e2 7b 4b 04 08", ("amx_tile",)),  # tileloadd
        ("c4 e2 73 5e c2", ("amx_int8",)),  # tdpbssd
        ("c4 e2 72 5c c2", ("amx_bf16",)),  # tdpbf16ps
        ("c5 f4 58 c2", ("avx",)),  # vaddps ymm
        ("c5 f5 fe c2", ("avx2",)),  # vpaddd ymm
        ("c5 f1 fe c2", ("avx",)),  # vpaddd xmm
        ("c4 e2 75 98 c2", ("fma",)),  # vfmadd132ps ymm
        ("c4 e2 fb f6 c1", ("bmi2",)),  # mulx
        ("f3 48 0f b8 c1", ("popcnt",)),
        ("f3 0f bc c1", ()),  # tzcnt runs as bsf on older processors
        ("0f 58 c1", ()),  # addps
    ],
)
def test_features(code: str, features: tuple[str, ...]) -> None:
    instruction = decode(bytes.fromhex(code))
    assert instruction is not None and instruction.features == features


@given(st.binary(max_size=20))
def test_any_bytes_are_decoded_or_not(code: bytes) -> None:
    instruction = decode(code)
    assert instruction is None or 0 < instruction.length <= 15


@pytest.mark.parametrize(
    "code", ["48 8b 40 28", "62 f1 7c 48 10 40 01", "48 b8 01 02 03 04 05 06 07 08", "e8 01 02 03 04"]
)
def test_a_cut_instruction_is_none(code: str) -> None:
    data = bytes.fromhex(code)
    assert decode(data) is not None
    assert all(decode(data[:length]) is None for length in range(len(data)))


# --- against objdump ------------------------------------------------------------------------------------------------

# Their operand is no access (lea, nop, prefetch), or not written as the bytes hold it (string instructions).
SKIPPED = re.compile(
    r"lea|nop|data16|cs$|prefetch|rep|movs[bwdq]?$|stos|cmps[bwdq]?$|scas|lods|xlat|bnd|notrack|rex|\.byte"
)
READS_FIRST = re.compile(r"cmp$|test|bt$|call|jmp|push|i?div|i?mul|f|v?u?comis|v?ldmxcsr|xrstor|v?ucomis|vcomis")
LINE = re.compile(r"\s*[0-9a-f]+:\t((?:[0-9a-f]{2} )+)\s*\t?(.*)$")
OPERAND = re.compile(r"(?:(fs|gs|ds):)?(?:\[([^\]]*)\]|(?<=:)(0x[0-9a-f]+))")


def disagreements(library: str, *options: str) -> tuple[int, list[str]]:
    command = ["objdump", "-d", "-M", "intel", "--insn-width=16", "-j", ".text", *options, library]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seen: set[tuple[bytes, str]] = set()
    wrong = []
    for line in listing.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        code, text = bytes.fromhex(match[1]), match[2].split("#")[0].split("<")[0].strip()
        name = text.split(" ")[0]
        if not text or "(bad)" in text or (code[:5], name) in seen:
            continue
        seen.add((code[:5], name))
        problem = disagreement(code, name, text)
        if problem:
            wrong.append(f"{match[1]} {text}: {problem}")
    return len(seen), wrong


def disagreement(code: bytes, name: str, text: str) -> str | None:
    if SKIPPED.match(name):
        return None
    instruction = decode(code)
    if instruction is None:
        return "not decoded"
    if instruction.length != len(code):
        return f"length {instruction.length}"
    wanted = OPERAND.search(text)
    explicit = [operand for operand in instruction.operands if not operand.implicit]
    if not wanted or not explicit:
        return None if not wanted and not explicit else f"operands {explicit}"
    ours = explicit[0].text.rpartition(":")[2].strip("[]")
    theirs = (wanted[2] or wanted[3]).replace("*1", "").removesuffix("+0x0")
    if "mm" not in theirs and ours.replace("*1", "").removesuffix("+0x0") != theirs:
        return f"operand {ours}"
    first = "[" in text.partition(",")[0]
    writes = "write" in (explicit[0].access or "")
    if first and not READS_FIRST.match(name) and not writes:
        return "should write"
    if writes and (not first and name != "xchg") and ":" not in text.partition(",")[0]:
        return "should read"
    return None


@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump (binutils)")
def test_every_instruction_of_the_c_library() -> None:
    libc = next(
        (path for path in Path("/lib").glob("*/libc.so.6")),
        Path(sysconfig.get_config_var("LIBDIR") or "/lib") / "libc.so.6",
    )
    count, wrong = disagreements(str(libc))
    assert count > 20_000 and not wrong, "\n".join(wrong[:30])

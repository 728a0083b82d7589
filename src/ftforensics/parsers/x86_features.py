"""Which CPU flags (names of the "flags" line of /proc/cpuinfo) an x86-64 opcode needs.

Only encodings that raise #UD on a CPU without the feature; lzcnt and tzcnt are left out, since older CPUs run them as
bsr and bsf. Tables after Intel SDM vol. 2 and Linux arch/x86/include/asm/cpufeatures.h. pp: 0 none, 1 = 66, 2 = F3, 3
= F2.
"""

from __future__ import annotations

# map 0F of byte and word elements (AVX512BW when EVEX)
_BYTE_WORD_1 = {
    0x60, 0x61, 0x63, 0x64, 0x65, 0x67, 0x68, 0x69, 0x71, 0x74, 0x75, 0xC4, 0xC5, 0xD1, 0xD5, 0xD8, 0xD9, 0xDA,
    0xDC, 0xDD, 0xDE, 0xE0, 0xE1, 0xE3, 0xE4, 0xE5, 0xE8, 0xE9, 0xEA, 0xEC, 0xED, 0xEE, 0xF1, 0xF5, 0xF6, 0xF8,
    0xF9, 0xFC, 0xFD,
}  # fmt: skip
_BYTE_WORD_2 = {0x00, 0x04, 0x0B, 0x1C, 0x1D, 0x20, 0x30, 0x38, 0x3A, 0x3C, 0x3E, 0x66, 0x78, 0x79, 0x7A, 0x7B}


def legacy_features(table: int, opcode: int, repeat: int, operand16: bool) -> tuple[str, ...]:
    """table: 1 = 0F, 2 = 0F38, 3 = 0F3A; repeat: 0xF2, 0xF3 or 0."""
    if table == 1:
        return ("popcnt",) if opcode == 0xB8 and repeat == 0xF3 else ()
    if table == 3:
        if opcode in (0x44, 0xCC, 0xDF):
            return ({0x44: "pclmulqdq", 0xCC: "sha_ni", 0xDF: "aes"}[opcode],)
        return ("sse4_2",) if 0x60 <= opcode <= 0x63 else ("ssse3",) if opcode == 0x0F else ("sse4_1",)
    if opcode in (0xF0, 0xF1):
        return ("sse4_2",) if repeat == 0xF2 else ("movbe",)
    if opcode == 0xF6:
        return ("adx",) if repeat == 0xF3 or operand16 else ()
    if 0xDB <= opcode <= 0xDF:
        return ("aes",)
    if 0xC8 <= opcode <= 0xCD:
        return ("sha_ni",)
    if opcode <= 0x0B or 0x1C <= opcode <= 0x1E:
        return ("ssse3",)
    if opcode == 0x37:
        return ("sse4_2",)
    return ("sse4_1",) if 0x10 <= opcode <= 0x41 else ()


def vex_features(table: int, opcode: int, pp: int, length: int) -> tuple[str, ...]:
    """length: 0 = 128 bits, 1 = 256 bits."""
    if table == 1:
        # 256-bit integer instructions came with AVX2, the floating-point ones with AVX.
        integer = (
            pp == 1
            and (0x60 <= opcode <= 0x76 or 0xD1 <= opcode <= 0xFE)
            and opcode not in (0xD6, 0xE6, 0xE7, 0x6E, 0x6F)
        )
        mask = opcode in {0x41, 0x42, 0x44, 0x45, 0x46, 0x47, 0x4A, 0x4B, 0x90, 0x91, 0x92, 0x93, 0x98, 0x99}
        if mask:
            return ("avx512f",)  # k registers
        return ("avx2",) if integer and length else ("avx",)
    if table == 2:
        return _vex_0f38(opcode, pp, length)
    if table == 3:
        if opcode == 0xF0:
            return ("bmi2",)
        if opcode == 0x1D:
            return ("f16c",)
        return (
            ("avx2",)
            if opcode in (0x00, 0x01, 0x02, 0x38, 0x39, 0x46) or (length and opcode in (0x0E, 0x0F, 0x42, 0x4C))
            else ("avx",)
        )
    return ()


def _vex_0f38(opcode: int, pp: int, length: int) -> tuple[str, ...]:
    if opcode in (0x49, 0x4B):
        return ("amx_tile",)
    if opcode == 0x5E:
        return ("amx_int8",)
    if opcode == 0x5C:
        return ("amx_fp16",) if pp == 3 else ("amx_bf16",)
    if 0x96 <= opcode <= 0x9F or 0xA6 <= opcode <= 0xAF or 0xB6 <= opcode <= 0xBF:
        return ("fma",)
    if opcode in (0xF2, 0xF3) or (opcode == 0xF7 and pp == 0):
        return ("bmi1",)
    if opcode in (0xF5, 0xF6, 0xF7):
        return ("bmi2",)
    if 0x50 <= opcode <= 0x53:
        return ("avx_vnni",)
    if opcode == 0x13:
        return ("f16c",)
    if opcode in (0x16, 0x36, 0x45, 0x46, 0x47, 0x58, 0x59, 0x5A, 0x78, 0x79, 0x8C, 0x8E, 0x90, 0x91, 0x92, 0x93):
        return ("avx2",)
    if length and (opcode <= 0x0B or 0x1C <= opcode <= 0x41) and opcode not in (0x2C, 0x2D, 0x2E, 0x2F):
        return ("avx2",)
    return ("avx",)


def evex_features(table: int, opcode: int, pp: int, length: int, scalar: bool) -> tuple[str, ...]:
    """length: 0, 1, 2 = 128, 256, 512 bits. The base feature first, then what refines it."""
    needed = ["avx512f"]
    if length < 2 and not scalar:
        needed.append("avx512vl")
    if table in (5, 6):
        needed.append("avx512_fp16")
    elif (table == 1 and (opcode in _BYTE_WORD_1 or (opcode in (0x6F, 0x7F) and pp == 3))) or (
        table == 2 and opcode in _BYTE_WORD_2
    ):
        needed.append("avx512bw")
    elif (table == 2 and opcode == 0x72 and pp in (2, 3)) or (table == 2 and opcode == 0x52 and pp == 2):
        needed.append("avx512_bf16")
    elif table == 2 and 0x50 <= opcode <= 0x53 and pp == 1:
        needed.append("avx512_vnni")
    elif table == 2 and opcode in (0x75, 0x7D, 0x8D, 0x83):
        needed.append("avx512vbmi")
    elif table == 2 and (opcode in (0x62, 0x63) or 0x70 <= opcode <= 0x73):
        needed.append("avx512_vbmi2")
    elif table == 2 and opcode == 0x54:
        needed.append("avx512_bitalg")
    elif table == 2 and opcode == 0x55:
        needed.append("avx512_vpopcntdq")
    elif table == 2 and opcode in (0xB4, 0xB5):
        needed.append("avx512ifma")
    return tuple(needed)

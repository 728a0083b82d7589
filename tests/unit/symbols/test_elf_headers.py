"""Headers of real files, against what binutils reads in them."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ftforensics.symbols.elf import Elf, ElfError, read_elf

SOURCE = "int counter = 1; int zeroed[4096]; int exported(int x) { return x + counter + zeroed[x]; }"

Compile = Callable[..., Path]


def headers(path: Path) -> Elf:
    with path.open("rb") as file:
        return read_elf(file.fileno())


def output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def symbol_value(path: Path, name: str) -> int:
    return next(int(line.split()[0], 16) for line in output("nm", path).splitlines() if line.split()[-1] == name)


def test_build_id(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    (expected,) = re.findall(r"Build ID: ([0-9a-f]+)", output("readelf", "-n", path))
    assert headers(path).build_id == expected


def test_build_id_behind_other_notes_of_another_alignment(compile_library: Compile) -> None:
    # .note.gnu.property has 8-byte alignment and comes first with -fcf-protection (x86) or -mbranch-protection.
    path = compile_library(
        SOURCE + '\n__asm__(".section .note.first,\\"a\\",@note\\n.balign 4\\n.long 5,3,3\\n.asciz \\"ABCD\\"'
        '\\n.balign 4\\n.byte 1,2,3\\n.balign 4\\n.text");',
    )
    (expected,) = re.findall(r"Build ID: ([0-9a-f]+)", output("readelf", "-n", path))
    assert headers(path).build_id == expected


def test_a_file_without_build_id(compile_library: Compile) -> None:
    assert headers(compile_library(SOURCE, "-Wl,--build-id=none")).build_id is None


def test_build_id_without_section_headers(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    expected = headers(path).build_id
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, 40, 0)  # e_shoff
    struct.pack_into("<HHH", content, 58, 0, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    path.write_bytes(content)

    elf = headers(path)

    assert (elf.sections, elf.build_id) == ((), expected)
    assert elf.symbol_table("symtab") is None


def test_the_symbol_tables_lie_where_readelf_says(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    sections = {}
    for line in output("readelf", "-SW", path).splitlines():
        found = re.match(r"\s*\[ *\d+\] (\S+)\s+\S+\s+[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", line)
        if found:
            sections[found[1]] = (int(found[2], 16), int(found[3], 16))
    elf = headers(path)
    for kind, names in (("symtab", ".strtab"), ("dynsym", ".dynstr")):
        table = elf.symbol_table(kind)
        assert table is not None
        assert (table.offset, table.size) == sections[f".{kind}"]
        assert (table.names_offset, table.names_size) == sections[names]


def test_a_stripped_file_has_exported_names_only(compile_library: Compile) -> None:
    elf = headers(compile_library(SOURCE, "-s"))
    assert elf.symbol_table("symtab") is None
    assert elf.symbol_table("dynsym") is not None


def test_code_data_and_offsets(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    elf = headers(path)
    code, data, zeroed = (symbol_value(path, name) for name in ("exported", "counter", "zeroed"))

    assert [elf.is_code(address) for address in (code, data, zeroed, 1 << 40)] == [True, False, False, False]
    at = elf.file_offset(data)
    assert at is not None and path.read_bytes()[at : at + 4] == b"\1\0\0\0"
    assert elf.file_offset(zeroed + 8192) is None  # .bss
    assert elf.file_offset(1 << 40) is None
    at = elf.file_offset(code)
    assert at is not None and elf.address_of_offset(at) == code
    section = elf.section_at(code)
    assert section is not None and section.name == ".text"


def test_a_first_segment_that_does_not_start_at_zero(compile_library: Compile) -> None:
    """As in a prelinked library; the first mapping then stands for 0x400000."""
    path = compile_library(SOURCE, "-Wl,-Ttext-segment=0x400000")
    elf = headers(path)
    assert elf.first_address == 0x400000
    assert elf.address_at(0x123) == 0x400123


def test_debug_link(compile_library: Compile, tmp_path: Path) -> None:
    path = compile_library(SOURCE)
    debug = tmp_path / "tiny.debug"
    output("objcopy", "--only-keep-debug", path, debug)
    output("objcopy", "--add-gnu-debuglink", debug, path)

    assert headers(path).debug_link == "tiny.debug"
    assert headers(debug).debug_link is None
    assert headers(debug).build_id == headers(path).build_id


@pytest.mark.parametrize("name", [b"../../etc/x", b"", b".", b"/abs"])
def test_a_debug_link_that_leaves_the_folder_is_no_link(compile_library: Compile, tmp_path: Path, name: bytes) -> None:
    path = compile_library(SOURCE)
    (tmp_path / "link").write_bytes(name + b"\0\0\0\0\0\0\0\0")
    output("objcopy", "--add-section", f".gnu_debuglink={tmp_path / 'link'}", path)
    assert headers(path).debug_link is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not an ELF file"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (b"\x7fELF", "ends inside"),
        (b"\x7fELF\x01\x01" + bytes(200), "not a 64-bit"),
        (b"\x7fELF\x02\x02" + bytes(200), "little-endian"),
        (b"\x7fELF\x02\x01" + bytes(200), "no segments"),
    ],
)
def test_what_is_no_elf_file_of_ours(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ElfError, match=said):
        headers(path)


def test_program_headers_counted_in_section_zero(compile_library: Compile) -> None:
    """PN_XNUM and SHN_XINDEX: the counts do not fit in 16 bits (man 5 elf). Here they would, which is legal too."""
    path = compile_library(SOURCE)
    before = headers(path)
    content = bytearray(path.read_bytes())
    (section_offset,) = struct.unpack_from("<Q", content, 40)
    (programs,) = struct.unpack_from("<H", content, 56)
    count, names = struct.unpack_from("<HH", content, 60)
    struct.pack_into("<H", content, 56, 0xFFFF)
    struct.pack_into("<HH", content, 60, 0, 0xFFFF)
    struct.pack_into("<QII", content, section_offset + 32, count, names, programs)  # sh_size, sh_link, sh_info
    path.write_bytes(content)

    after = headers(path)

    assert (after.segments, after.build_id) == (before.segments, before.build_id)
    assert after.sections[1:] == before.sections[1:]


def test_this_interpreter(tmp_path: Path) -> None:
    elf = headers(Path(os.path.realpath("/proc/self/exe")))
    assert elf.segments and elf.sections

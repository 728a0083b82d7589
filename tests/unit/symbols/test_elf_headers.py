"""Headers of real files, against what binutils reads in them."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ftforensics.symbols.elf import SYMBOLS_LIMIT, Elf, ElfError, read_elf

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


def note(name: bytes, kind: int, content: bytes, alignment: int) -> bytes:
    def padded(part: bytes) -> bytes:
        return part + bytes(-len(part) % alignment)

    # With 8-byte alignment the header and the name are padded together (glibc's ELF_NOTE_DESC_OFFSET).
    return padded(struct.pack("<III", len(name), len(content), kind) + name) + padded(content)


@pytest.mark.parametrize("alignment", [1, 4, 8])
def test_build_id_behind_other_notes(tmp_path: Path, alignment: int) -> None:
    padding = 8 if alignment == 8 else 4
    notes = note(b"GNU\0", 5, b"1234", padding) + note(b"ABCDE\0", 3, b"xyz", padding)
    notes += note(b"GNU\0", 3, bytes(range(20)), padding)
    program = struct.pack("<IIQQQQQQ", 4, 4, 120, 120, 120, len(notes), len(notes), alignment)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    path = tmp_path / "noted"
    path.write_bytes(header + program + notes)
    assert headers(path).build_id == bytes(range(20)).hex()
    path.write_bytes((header + program + notes)[:-4])
    assert headers(path).build_id is None  # cut: not half of it


def test_build_id_without_program_headers(compile_library: Compile) -> None:
    """A separate debug file may have useless ones."""
    path = compile_library(SOURCE)
    expected = headers(path).build_id
    content = bytearray(path.read_bytes())
    struct.pack_into("<H", content, 56, 0)  # e_phnum
    path.write_bytes(content)
    assert (headers(path).segments, headers(path).build_id) == ((), expected)


def change_section(path: Path, name: str, offset: int, layout: str, value: int) -> None:
    """Overwrite one field (offset in Elf64_Shdr) of a section header."""
    index = [section.name for section in headers(path).sections].index(name)
    content = bytearray(path.read_bytes())
    (start,) = struct.unpack_from("<Q", content, 40)
    struct.pack_into(layout, content, start + 64 * index + offset, value)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("section", "offset", "layout", "value"),
    [
        (".symtab", 32, "<Q", 1 << 40),  # sh_size
        (".symtab", 24, "<Q", 2**64 - 8),  # sh_offset
        (".symtab", 56, "<Q", 16),  # sh_entsize
        (".symtab", 40, "<I", 5000),  # sh_link
        (".symtab", 40, "<I", 1),  # sh_link: no string table
        (".strtab", 32, "<Q", 1 << 40),
    ],
)
def test_a_table_that_lies_is_none(
    compile_library: Compile, section: str, offset: int, layout: str, value: int
) -> None:
    path = compile_library(SOURCE)
    change_section(path, section, offset, layout, value)
    assert headers(path).symbol_table("symtab") is None
    assert headers(path).symbol_table("dynsym") is not None


@pytest.mark.parametrize("size", [SYMBOLS_LIMIT + 24, 1 << 40])
def test_a_sparse_table_of_terabytes_is_none(compile_library: Compile, size: int) -> None:
    """The file is as long as its headers say, so that only the size itself can be doubted."""
    path = compile_library(SOURCE)
    change_section(path, ".symtab", 32, "<Q", size)
    os.truncate(path, size + (1 << 20))
    assert headers(path).symbol_table("symtab") is None
    assert headers(path).symbol_table("dynsym") is not None


@pytest.mark.parametrize("section", [".shstrtab", ".gnu_debuglink", ".note.gnu.build-id"])
def test_a_section_at_the_end_of_the_address_space(compile_library: Compile, tmp_path: Path, section: str) -> None:
    path = compile_library(SOURCE)
    (tmp_path / "tiny.debug").write_text("")
    output("objcopy", f"--add-gnu-debuglink={tmp_path / 'tiny.debug'}", path)
    build_id = headers(path).build_id
    change_section(path, section, 24, "<Q", 2**64 - 1)
    elf = headers(path)
    assert elf.build_id == build_id
    assert elf.debug_link == (None if section != ".note.gnu.build-id" else "tiny.debug")


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


def test_code_data_and_sections(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    elf = headers(path)
    code, data, zeroed = (symbol_value(path, name) for name in ("exported", "counter", "zeroed"))

    assert [elf.is_code(address) for address in (code, data, zeroed, 1 << 40)] == [True, False, False, False]
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

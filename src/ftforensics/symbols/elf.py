"""What an ELF file says about itself, read from its headers alone.

Symbols are never turned into Python objects here (libtorch has half a million); only where their tables lie is read,
and `_native.nearest_symbols` does the search. Everything is read with pread(2) from one open descriptor: a file that is
truncated meanwhile gives a short read, not SIGBUS, and what was checked is what is searched.

Layout: man 5 elf; the note format: "Note Section" of the ELF gABI. 64-bit little-endian only, which is all the
record can come from (x86-64, aarch64).
"""

from __future__ import annotations

import os
import struct

import msgspec

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
PROGRAM = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
NOTE = struct.Struct("<III")  # Elf64_Nhdr
SYMBOL_SIZE = 24  # sizeof(Elf64_Sym)

PT_LOAD, PT_NOTE, PF_X = 1, 4, 1
SHT_SYMTAB, SHT_STRTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 3, 7, 8, 11
PN_XNUM = SHN_XINDEX = 0xFFFF
NT_GNU_BUILD_ID = 3
WORD = 0xFFFF_FFFF_FFFF_FFFF

# ld.so and the kernel map whole pages, so that the first mapping starts at the page below the first PT_LOAD. aarch64
# kernels may use 16 or 64 KiB; linkers align the first segment to 64 KiB there, which makes the choice moot.
PAGE = 4096

TABLE_LIMIT = 1 << 20  # bytes of program or section headers; the largest real library seen has 4 KiB
SYMBOLS_LIMIT = 256 << 20  # bytes of one symbol table, 11 million symbols; a sparse file may claim terabytes
NAMES_LIMIT = 1 << 20  # bytes of section names
NOTES_LIMIT = 64 << 10  # bytes of one note segment or section


class ElfError(ValueError):
    """Not an ELF file of ours, or one whose headers contradict its size. The message is one phrase."""


class Segment(msgspec.Struct, frozen=True):
    """A program header. Addresses are the file's own (st_value space), before relocation."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    alignment: int


class Section(msgspec.Struct, frozen=True):
    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int
    alignment: int
    entry_size: int


class SymbolTable(msgspec.Struct, frozen=True):
    """Where symbols and their names lie in the file, in bytes. kind: "symtab" (all) or "dynsym" (exported only)."""

    kind: str
    offset: int
    size: int
    names_offset: int
    names_size: int


class Elf(msgspec.Struct, frozen=True):
    """The headers of one file. Every offset in it was checked against the file's size."""

    machine: int
    size: int
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]
    build_id: str | None  # lower-case hex of NT_GNU_BUILD_ID
    debug_link: str | None  # bare file name from .gnu_debuglink; its checksum is ignored, build-ids are compared

    @property
    def first_address(self) -> int:
        """The file address that stands at the start of the first mapping. 0 in nearly every library; not in
        prelinked libraries and programs linked at a fixed address."""
        loads = [segment.address for segment in self.segments if segment.type == PT_LOAD]
        return min(loads, default=0) // PAGE * PAGE

    def address_at(self, offset_from_base: int) -> int:
        """Runtime pc minus the module's base (start of its first mapping) -> file address (st_value space)."""
        return (self.first_address + offset_from_base) & WORD

    def is_code(self, address: int) -> bool:
        """Whether the address lies in an executable segment."""
        return any(
            segment.type == PT_LOAD and segment.flags & PF_X and 0 <= address - segment.address < segment.memory_size
            for segment in self.segments
        )

    def section_at(self, address: int) -> Section | None:
        """The loaded section that holds a file address."""
        for section in self.sections:
            if section.address and 0 <= address - section.address < section.size:
                return section
        return None

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def symbol_table(self, kind: str) -> SymbolTable | None:
        wanted = {"symtab": SHT_SYMTAB, "dynsym": SHT_DYNSYM}[kind]
        for section in self.sections:
            if section.type != wanted or section.entry_size != SYMBOL_SIZE or not 0 < section.size <= SYMBOLS_LIMIT:
                continue
            if not 0 < section.link < len(self.sections):
                continue
            names = self.sections[section.link]
            if names.type == SHT_STRTAB and _inside(section, self.size) and _inside(names, self.size):
                return SymbolTable(kind, section.offset, section.size, names.offset, names.size)
        return None


def read_elf(fd: int) -> Elf:
    """Read the headers. Raises ElfError when they make no sense, OSError when reading fails."""
    size = os.fstat(fd).st_size
    start = os.pread(fd, HEADER.size, 0)
    if not start.startswith(b"\x7fELF"):
        raise ElfError("not an ELF file")
    if len(start) < HEADER.size:
        raise ElfError("ends inside its ELF header")
    ident, _, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, shstrndx = HEADER.unpack(start)
    if ident[4:6] != b"\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF file")
    first = _headers(fd, SECTION, shoff, shentsize, 1, size)
    if first and shnum == 0:  # too many for the header's 16 bits: the counts stand in section 0 (man 5 elf)
        shnum = first[0][5]
    if first and shstrndx == SHN_XINDEX:
        shstrndx = first[0][6]
    if first and phnum == PN_XNUM:
        phnum = first[0][7]
    segments = tuple(
        Segment(kind, flags, offset, address, file_size, memory_size, alignment)
        for kind, flags, offset, address, _, file_size, memory_size, alignment in _headers(
            fd, PROGRAM, phoff, phentsize, phnum, size
        )
    )
    if not segments and not shnum:
        raise ElfError("no segments and no sections inside the file")
    sections = _sections(fd, _headers(fd, SECTION, shoff, shentsize, shnum, size), shstrndx, size)
    return Elf(machine, size, segments, sections, _build_id(fd, segments, sections), _debug_link(fd, sections))


def _headers(
    fd: int, layout: struct.Struct, offset: int, entry_size: int, count: int, file_size: int
) -> list[tuple[int, ...]]:
    """A table of headers; empty when any part of it lies outside the file."""
    size = layout.size * count
    if not count or entry_size != layout.size or size > TABLE_LIMIT or not 0 < offset <= file_size - size:
        return []
    table = os.pread(fd, size, offset)
    return list(layout.iter_unpack(table)) if len(table) == size else []


def _sections(fd: int, headers: list[tuple[int, ...]], names_index: int, file_size: int) -> tuple[Section, ...]:
    names = b""
    if 0 < names_index < len(headers):
        _, kind, _, _, offset, size, *_ = headers[names_index]
        if kind == SHT_STRTAB and 0 <= offset <= file_size:
            names = os.pread(fd, min(size, NAMES_LIMIT), offset)
    return tuple(
        Section(
            name=_text(names, name),
            type=kind,
            address=address,
            offset=offset,
            size=size,
            link=link,
            alignment=alignment,
            entry_size=entry_size,
        )
        for name, kind, _, address, offset, size, link, _, alignment, entry_size in headers
    )


def _inside(part: Section | Segment, file_size: int) -> bool:
    size = part.size if isinstance(part, Section) else part.file_size
    return part.offset <= file_size and size <= file_size - part.offset


def _text(table: bytes, offset: int) -> str:
    if offset >= len(table):
        return ""
    end = table.find(b"\0", offset)
    return table[offset : end if end >= 0 else len(table)][:256].decode("utf-8", "backslashreplace")


def _build_id(fd: int, segments: tuple[Segment, ...], sections: tuple[Section, ...]) -> str | None:
    """From the note segments, which is where a running process has it; from the sections in a separate debug file,
    whose segments point nowhere (objcopy --only-keep-debug keeps the headers of what it drops)."""
    size = os.fstat(fd).st_size
    parts: list[Segment | Section] = [segment for segment in segments if segment.type == PT_NOTE]
    parts += [section for section in sections if section.type == SHT_NOTE]
    for part in parts:
        if _inside(part, size):
            length = part.size if isinstance(part, Section) else part.file_size
            found = _build_id_in(os.pread(fd, min(length, NOTES_LIMIT), part.offset), 8 if part.alignment == 8 else 4)
            if found:
                return found
    return None


def _build_id_in(notes: bytes, alignment: int) -> str | None:
    at = 0
    while at + NOTE.size <= len(notes):
        name_size, size, kind = NOTE.unpack_from(notes, at)
        name_at = at + NOTE.size
        content_at = _round_up(name_at + name_size, alignment)
        if kind == NT_GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
            content = notes[content_at : content_at + size]
            return content.hex() if 0 < size == len(content) else None
        at = _round_up(content_at + size, alignment)
    return None


def _round_up(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment


def _debug_link(fd: int, sections: tuple[Section, ...]) -> str | None:
    section = next((section for section in sections if section.name == ".gnu_debuglink"), None)
    if section is None or section.type == SHT_NOBITS or section.offset > os.fstat(fd).st_size:
        return None
    name = _text(os.pread(fd, min(section.size, 4096), section.offset), 0)
    # A bare file name by definition (gdb manual, "Separate Debug Files"); anything else would leave the folder.
    return name if name not in ("", ".", "..") and "/" not in name else None

"""What a file asks of the dynamic loader: its names, the libraries it needs and where it wants them looked for.

Layout: man 5 elf, "Dynamic tags". Read by way of the program headers, as the loader does; section headers may be gone.
"""

from __future__ import annotations

import os
import struct

import msgspec

from ftforensics.symbols.elf import PT_LOAD, Elf

ENTRY = struct.Struct("<QQ")  # Elf64_Dyn
PT_DYNAMIC, PT_INTERP = 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 6, 14, 15, 29
DT_GNU_HASH, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFFB
DF_1_NODEFLIB = 0x800

ENTRIES_LIMIT = 64 << 10  # bytes of the dynamic section; libtorch's has 1 KiB
NEEDED_LIMIT = 1024  # libraries that one file needs
NAME_LIMIT = 64 << 10  # bytes of one string; torch's RPATH has 500


class Dynamic(msgspec.Struct, frozen=True):
    """The dynamic section. rpath, runpath: as written, ":" between; of a file that has both the loader takes runpath
    alone, and an empty one counts. gnu_hash, symbols, strings: file offsets, None where the file has none."""

    needed: tuple[str, ...] = ()
    soname: str | None = None
    rpath: str | None = None
    runpath: str | None = None
    no_default_folders: bool = False  # -z nodefaultlib
    interpreter: str | None = None  # PT_INTERP: programs only
    gnu_hash: int | None = None
    symbols: int | None = None
    strings: int | None = None


def read_dynamic(fd: int, elf: Elf) -> Dynamic:
    """An empty answer for a file without one (statically linked, an object file). Raises OSError."""
    place = next((segment for segment in elf.segments if segment.type == PT_DYNAMIC), None)
    content = os.pread(fd, min(place.file_size, ENTRIES_LIMIT), place.offset) if place else b""
    entries: list[tuple[int, int]] = []
    for tag, value in ENTRY.iter_unpack(content[: len(content) // ENTRY.size * ENTRY.size]):
        if tag == DT_NULL:
            break
        entries.append((tag, value))

    def offset(wanted: int) -> int | None:
        return next((_offset(elf, value) for tag, value in entries if tag == wanted), None)

    strings = offset(DT_STRTAB)

    def text(wanted: int) -> str | None:
        return next((_text(fd, strings, value) for tag, value in entries if tag == wanted), None)

    needed = [_text(fd, strings, value) for tag, value in entries if tag == DT_NEEDED]
    interpreter = next((segment for segment in elf.segments if segment.type == PT_INTERP), None)
    return Dynamic(
        needed=tuple(name for name in needed[:NEEDED_LIMIT] if name),
        soname=text(DT_SONAME) or None,
        rpath=text(DT_RPATH),
        runpath=text(DT_RUNPATH),
        no_default_folders=any(tag == DT_FLAGS_1 and value & DF_1_NODEFLIB for tag, value in entries),
        interpreter=_text(fd, interpreter.offset, 0) if interpreter else None,
        gnu_hash=offset(DT_GNU_HASH),
        symbols=offset(DT_SYMTAB),
        strings=strings,
    )


def _offset(elf: Elf, address: int) -> int | None:
    """Where the loaded byte at a file address lies in the file."""
    for segment in elf.segments:
        if segment.type == PT_LOAD and 0 <= address - segment.address < segment.file_size:
            at = segment.offset + address - segment.address
            return at if at < elf.size else None
    return None


def _text(fd: int, table: int | None, index: int) -> str | None:
    # pread takes a signed 64-bit offset; an index beyond 4 GiB is no string of a table that was ever written.
    if table is None or index > 0xFFFF_FFFF:
        return None
    piece = b""
    while b"\0" not in piece and len(piece) < NAME_LIMIT:
        more = os.pread(fd, 512, table + index + len(piece))
        if not more:
            break
        piece += more
    return piece.split(b"\0")[0].decode("utf-8", "backslashreplace")

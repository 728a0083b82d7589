"""Where else symbols may stand when a library was stripped: separate debug files and .gnu_debugdata.

A candidate counts only when its build-id is the library's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

from ftforensics.host.host import Host, Refusal
from ftforensics.symbols.elf import SHT_NOBITS, Elf, ElfError, read_elf
from ftforensics.symbols.table import Source, source_of

DEBUG_ROOT = "/usr/lib/debug"  # gdb manual, "Separate Debug Files"; all distributions we know keep it
UNPACKED_LIMIT = 64 << 20  # bytes; Fedora's largest is a few megabytes


def find_debug_file(host: Host, build_id: str, library: str, elf: Elf | None, stack: ExitStack) -> Source | None:
    """The full symbol table in a separate debug file. library: its path; elf: its headers, None when it is gone."""
    for path in _candidates(host, build_id, library, elf):
        try:
            file = stack.enter_context(host.open(path))
            found = read_elf(file.fileno())
        except (Refusal, ElfError, OSError):
            continue
        if found.build_id == build_id and (source := source_of("debug", file.fileno(), found, "symtab")):
            return source
    return None


def _candidates(host: Host, build_id: str, library: str, elf: Elf | None) -> Iterator[str]:
    yield f"{DEBUG_ROOT}/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    if elf is None or elf.debug_link is None:
        return
    try:
        folder = os.path.dirname(host.real_path(library))
    except Refusal:
        return
    for beside in (folder, f"{folder}/.debug", f"{DEBUG_ROOT}{folder}"):
        yield f"{beside}/{elf.debug_link}"


def unpack_embedded(fd: int, elf: Elf, stack: ExitStack) -> Source | None:
    """.gnu_debugdata: an xz-packed ELF file inside the library with the names of its local functions only
    ("MiniDebugInfo" in the gdb manual; Fedora and RHEL ship it in every library). Unpacked into memory."""
    section = elf.section(".gnu_debugdata")
    if section is None or section.type == SHT_NOBITS or not 0 < section.size <= elf.size - section.offset:
        return None
    if section.size > UNPACKED_LIMIT:  # of a sparse file, which costs nobody a disk
        return None
    try:
        import lzma  # late: few libraries need it
    except ImportError:  # a Python built without liblzma
        return None
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=UNPACKED_LIMIT)
        content = unpacker.decompress(os.pread(fd, section.size, section.offset), UNPACKED_LIMIT)
        memory = os.memfd_create("gnu_debugdata", os.MFD_CLOEXEC)
        file = stack.enter_context(os.fdopen(memory, "w+b"))
        file.write(content)
        file.flush()
        return source_of("dynsym", memory, read_elf(memory), "symtab")
    except (lzma.LZMAError, EOFError, ElfError, OSError, MemoryError):
        return None

"""The names that a library gives to others, and those that it wants from them.

libtorch_cpu exports a hundred thousand names: each is looked up the way the dynamic loader does it, through the hash
table in the file, a handful of small reads a name. Format: DT_GNU_HASH as the GNU linkers write it (binutils
bfd/elflink.c, glibc elf/dl-lookup.c). Files without that table (linked with --hash-style=sysv) have all their names
read.
"""

from __future__ import annotations

import os
import struct
from functools import cached_property

from ftforensics.symbols.dynamic import Dynamic
from ftforensics.symbols.elf import SYMBOL_SIZE, Elf

SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_HASH_HEADER = struct.Struct("<IIII")  # buckets, first symbol, bloom words, bloom shift
SHN_UNDEF = 0
STB_GLOBAL = 1

CHAIN_LIMIT = 4096  # names in one bucket; linkers aim at a few
STRINGS_LIMIT = 128 << 20  # bytes of .dynstr; libtorch_cuda's has 40 MB
READ_LIMIT = 64 << 20  # bytes of .dynsym read as a whole


class Exports:
    """fd: open for as long as this is asked."""

    def __init__(self, fd: int, elf: Elf, dynamic: Dynamic) -> None:
        self._fd = fd
        self._elf = elf
        self._dynamic = dynamic

    def defines(self, name: str) -> bool:
        """Does the library export `name`? Symbol versions are not compared. Raises OSError."""
        bare = name.encode("utf-8", "surrogateescape")
        if self._header is None:
            return bare in self._all
        buckets, first, bloom_words, shift = self._header
        assert self._dynamic.gnu_hash is not None
        bloom_at = self._dynamic.gnu_hash + _HASH_HEADER.size
        value = _gnu_hash(bare)
        word = self._number(bloom_at + value // 64 % bloom_words * 8, 8)
        if not (word >> value % 64 & 1 and word >> (value >> shift) % 64 & 1):
            return False
        buckets_at = bloom_at + bloom_words * 8
        start = self._number(buckets_at + value % buckets * 4, 4)
        if start < first:
            return False
        chain_at = buckets_at + buckets * 4
        for index in range(start, start + CHAIN_LIMIT):
            here = self._number(chain_at + (index - first) * 4, 4)
            if here | 1 == value | 1 and self._is_named(index, bare):
                return True
            if here & 1:  # the bucket's last
                break
        return False

    @cached_property
    def _header(self) -> tuple[int, int, int, int] | None:
        dynamic = self._dynamic
        if dynamic.gnu_hash is None or dynamic.symbols is None or dynamic.strings is None:
            return None
        content = os.pread(self._fd, _HASH_HEADER.size, dynamic.gnu_hash)
        if len(content) < _HASH_HEADER.size:
            return None
        buckets, first, bloom_words, shift = _HASH_HEADER.unpack(content)
        return (buckets, first, bloom_words, shift) if buckets and bloom_words and shift < 64 else None

    def _number(self, offset: int, size: int) -> int:
        return int.from_bytes(os.pread(self._fd, size, offset), "little")

    def _is_named(self, index: int, name: bytes) -> bool:
        assert self._dynamic.symbols is not None and self._dynamic.strings is not None
        entry = os.pread(self._fd, SYMBOL_SIZE, self._dynamic.symbols + index * SYMBOL_SIZE)
        if len(entry) < SYMBOL_SIZE:
            return False
        name_at, _, _, section, _, _ = SYMBOL.unpack(entry)
        wanted = name + b"\0"
        return section != SHN_UNDEF and os.pread(self._fd, len(wanted), self._dynamic.strings + name_at) == wanted

    @cached_property
    def _all(self) -> frozenset[bytes]:
        symbols, strings = _tables(self._fd, self._elf)
        return frozenset(_name(strings, one[0]) for one in symbols if one[3] != SHN_UNDEF)


def undefined_names(fd: int, elf: Elf) -> list[str]:
    """Names that the file must be given by others: global and undefined; weak ones may stay without. In the table's
    order. Raises OSError."""
    symbols, strings = _tables(fd, elf)
    return [
        _name(strings, name_at).decode("utf-8", "backslashreplace")
        for name_at, info, _, section, _, _ in symbols
        if section == SHN_UNDEF and info >> 4 == STB_GLOBAL and name_at
    ]


def dynamic_strings(fd: int, elf: Elf) -> bytes:
    """All names in the file's dynamic symbol table, exported or wanted, NUL between. Raises OSError."""
    return _tables(fd, elf)[1]


def _tables(fd: int, elf: Elf) -> tuple[list[tuple[int, ...]], bytes]:
    table = elf.symbol_table("dynsym")
    if table is None or table.size > READ_LIMIT or table.names_size > STRINGS_LIMIT:
        return [], b""
    symbols = os.pread(fd, table.size // SYMBOL_SIZE * SYMBOL_SIZE, table.offset)
    strings = os.pread(fd, table.names_size, table.names_offset)
    return list(SYMBOL.iter_unpack(symbols[: len(symbols) // SYMBOL_SIZE * SYMBOL_SIZE])), strings


def _name(strings: bytes, offset: int) -> bytes:
    end = strings.find(b"\0", offset)
    return strings[offset : end if end >= 0 else len(strings)]


def _gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFF_FFFF
    return value

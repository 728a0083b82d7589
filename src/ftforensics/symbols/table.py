"""A symbol table in an open file, and the answers it gives."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.symbols.cache import Entry
from ftforensics.symbols.elf import WORD, Elf, SymbolTable


class Source(msgspec.Struct, frozen=True):
    """kind: "symtab", "debug" or "dynsym", as in `LibraryFile.source`; fd: open as long as the source is used."""

    kind: str
    fd: int
    elf: Elf
    table: SymbolTable

    def look_up(self, offsets: Sequence[int]) -> list[Entry]:
        """The symbol at each offset from the start of the first mapping, in one pass over the table.

        Raises OSError or ValueError when the file changed since its headers were read, ImportError when the
        extension is not there.
        """
        from ftforensics._native import nearest_symbols  # late: a record without native frames needs no extension

        addresses = [self.elf.address_at(offset) for offset in offsets]
        found = nearest_symbols(
            b"/proc/self/fd/%d" % self.fd,  # the very file that was checked, whatever its path leads to by now
            self.table.offset,
            self.table.size,
            self.table.names_offset,
            self.table.names_size,
            addresses,
        )
        return [
            Entry(offset, (symbol[0] - self.elf.first_address) & WORD, symbol[2])
            if symbol is not None and self._fits(address, symbol[0], symbol[1])
            else Entry(offset)
            for offset, address, symbol in zip(offsets, addresses, found, strict=True)
        ]

    def _fits(self, address: int, start: int, size: int) -> bool:
        """Only code has a function, and a label without a size ends with its section: `_init` is not the whole PLT."""
        if not self.elf.is_code(address):
            return False
        return size != 0 or self.elf.section_at(address) == self.elf.section_at(start)


def source_of(kind: str, fd: int, elf: Elf, table_kind: str) -> Source | None:
    """The file's table of that kind ("symtab" or "dynsym") as a source; None when it has none."""
    table = elf.symbol_table(table_kind)
    return Source(kind, fd, elf, table) if table is not None else None

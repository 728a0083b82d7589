"""/proc/PID/maps (man proc_pid_maps), as address ranges that can be asked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec


class Mapping(msgspec.Struct, frozen=True):
    """start, end: addresses, end exclusive; offset: bytes into the file; path: without " (deleted)"; text: the line."""

    start: int
    end: int
    permissions: str  # "rwxp"; the last letter is p private or s shared
    offset: int
    device: str
    inode: int
    path: str
    deleted: bool
    text: str

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def accessible(self) -> bool:
        return self.permissions[:3] != "---"

    @property
    def is_file(self) -> bool:
        return self.inode != 0


class AddressSpace:
    """All mappings of a process, in order. Lines that do not parse are left out."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.mappings = sorted(filter(None, map(parse_mapping, lines)), key=lambda mapping: mapping.start)
        self._starts = [mapping.start for mapping in self.mappings]

    def __bool__(self) -> bool:
        return bool(self.mappings)

    def at(self, address: int) -> Mapping | None:
        """The mapping that holds `address`."""
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self.mappings[index].end:
            return self.mappings[index]
        return None

    def above(self, address: int) -> Mapping | None:
        """The first mapping that starts above `address`."""
        index = bisect_right(self._starts, address)
        return self.mappings[index] if index < len(self.mappings) else None


def parse_mapping(line: str) -> Mapping | None:
    fields = line.split(None, 5)
    if len(fields) < 5:
        return None
    low, _, high = fields[0].partition("-")
    try:
        start, end, offset, inode = int(low, 16), int(high, 16), int(fields[2], 16), int(fields[4])
    except ValueError:
        return None
    path = fields[5].rstrip("\n") if len(fields) > 5 else ""
    deleted = path.endswith(" (deleted)")
    permissions = fields[1].ljust(4, "-")
    if start >= end:
        return None
    return Mapping(
        start, end, permissions, offset, fields[3], inode, path.removesuffix(" (deleted)"), deleted, line.strip()
    )

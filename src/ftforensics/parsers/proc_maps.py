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
    """All mappings of a process, in order. Lines that do not parse are left out.

    A line is parsed when it is asked for: a process of torch has two thousand of them, and a crash is about one."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = sorted(
            ((start, line) for line in lines if (start := _start(line)) is not None), key=lambda entry: entry[0]
        )
        self._starts = [start for start, _ in self._lines]

    @property
    def mappings(self) -> list[Mapping]:
        return [mapping for _, line in self._lines if (mapping := parse_mapping(line)) is not None]

    def __bool__(self) -> bool:
        return any(parse_mapping(line) is not None for _, line in self._lines)

    def at(self, address: int) -> Mapping | None:
        """The mapping that holds `address`."""
        for index in range(bisect_right(self._starts, address) - 1, -1, -1):
            mapping = parse_mapping(self._lines[index][1])
            if mapping is not None:
                return mapping if address < mapping.end else None
        return None

    def above(self, address: int) -> Mapping | None:
        """The first mapping that starts above `address`."""
        following = (parse_mapping(line) for _, line in self._lines[bisect_right(self._starts, address) :])
        return next((mapping for mapping in following if mapping is not None), None)


def _start(line: str) -> int | None:
    try:
        return int(line.partition("-")[0], 16)
    except ValueError:
        return None


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

"""The newest slots of a ring, cut out of a large file: a smaller ring, which `wire.ring` reads like any other.

A ring holds minutes of samples, half a megabyte of them. Of a job with thousands of ranks nobody looks at more than the
end of most: so only that is read from the disk and decoded. That works because a slot lies at (its number - 1) modulo
the count of slots: the newest N, put at that place modulo N, are a ring of N slots.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

Read = Callable[[int, int], bytes]
"""(offset, size) -> the bytes there, fewer at the end of the file. May raise OSError."""

_FILE_SIZE_AT = 16
_SECTIONS_AT = 228
_TABLE_AT = 232
_TABLE = struct.Struct("<Q I I")
_HEADER = 4096  # bytes, more than the header has
_NUMBER = struct.Struct("<Q")
# How many slots are kept of each section, in the order of the table: job, process, threads, phase, note and step whole.
_FIRST_OF_SAMPLES = 6
_NEWEST = {6: 12, 7: 3, 8: 8, 9: 12}  # fast, slow, signals, marks
_AT_ONCE = 16 << 10  # bytes: to read so much costs no more than to ask for one number
_MOST_TEXT = 256 << 10  # bytes of the sections that are kept whole


def newest_of_ring(read: Read, size: int) -> bytes | None:
    """size: of the file. None: the ring is cut, damaged or not laid out as ours are; to be read whole."""
    head = read(0, min(_HEADER, size))
    if len(head) < _TABLE_AT:
        return None
    (sections,) = struct.unpack_from("<I", head, _SECTIONS_AT)
    (file_size,) = _NUMBER.unpack_from(head, _FILE_SIZE_AT)
    if (
        sections != _FIRST_OF_SAMPLES + len(_NEWEST)
        or size < file_size
        or len(head) < _TABLE_AT + sections * _TABLE.size
    ):
        return None
    table = [_TABLE.unpack_from(head, _TABLE_AT + index * _TABLE.size) for index in range(sections)]
    if any(slot < 2 * _NUMBER.size or offset + slot * count > size for offset, slot, count in table):
        return None
    begin, end = table[0][0], table[_FIRST_OF_SAMPLES][0]
    if not _TABLE_AT + sections * _TABLE.size <= begin <= end <= begin + _MOST_TEXT:
        return None
    kept = bytearray(head[:begin] if begin <= len(head) else read(0, begin))
    kept += read(begin, end - begin)
    if len(kept) != end:
        return None
    for index in range(_FIRST_OF_SAMPLES, sections):
        offset, slot, count = table[index]
        newest = _newest(read, offset, slot, count, _NEWEST[index])
        if newest is None:
            return None
        _TABLE.pack_into(kept, _TABLE_AT + index * _TABLE.size, len(kept), slot, len(newest) // slot)
        kept += newest
    _NUMBER.pack_into(kept, _FILE_SIZE_AT, len(kept))
    return bytes(kept)


def _newest(read: Read, offset: int, slot: int, count: int, most: int) -> bytes | None:
    """The newest slots of one section, at their places among `most`. None: they are not as a ring's are."""
    if count <= most:
        return read(offset, slot * count)
    last = _last(read, offset, slot, count)
    if last is None:
        return None
    index, number = last
    if number == 0:
        return bytes(slot)  # one that was never written
    wanted = min(most, number)
    first = index - wanted + 1
    if first >= 0:
        data = read(offset + first * slot, slot * wanted)
    else:
        data = read(offset + (first + count) * slot, -first * slot) + read(offset, (index + 1) * slot)
    if len(data) != slot * wanted:
        return None
    placed: list[bytes] = [bytes(slot)] * wanted
    for at in range(wanted):
        one = data[at * slot : (at + 1) * slot]
        expected = number - wanted + 1 + at
        if _NUMBER.unpack_from(one) != (expected,) or _NUMBER.unpack_from(one, slot - _NUMBER.size) != (expected,):
            return None
        placed[(expected - 1) % wanted] = one
    return b"".join(placed)


def _last(read: Read, offset: int, slot: int, count: int) -> tuple[int, int] | None:
    """(index, number) of the newest slot; number 0: none was ever written.

    Numbers ascend from the first slot to the newest, behind which stand older ones, or zeros. The slot in the making
    stands right behind the newest and is zero: to a search that counts as older too."""

    def number(index: int) -> int:
        found = read(offset + index * slot, _NUMBER.size)
        return int(_NUMBER.unpack(found)[0]) if len(found) == _NUMBER.size else 0

    first = number(0)
    if first == 0:
        # Nothing was written, or the first slot is in the making again: then the newest is the section's last.
        last = number(count - 1)
        return (count - 1, last) if last and (last - 1) % count == count - 1 else (0, 0) if number(1) == 0 else None
    low, high = 0, count - 1
    newest = first
    while (high - low + 1) * slot > _AT_ONCE and low < high:
        middle = (low + high + 1) // 2
        found = number(middle)
        if found >= first:
            low, newest = middle, found
        else:
            high = middle - 1
    block = read(offset + low * slot, (high - low + 1) * slot)
    if len(block) != (high - low + 1) * slot:
        return None
    base = low
    while low < high:
        middle = (low + high + 1) // 2
        (found,) = _NUMBER.unpack_from(block, (middle - base) * slot)
        if found >= first:
            low, newest = middle, found
        else:
            high = middle - 1
    return (low, newest) if (newest - 1) % count == low else None

"""A ring cut down to its newest slots says of the process what the whole one says."""

from __future__ import annotations

import random

import pytest

from ftforensics.model.ring import Ring
from ftforensics.wire.ring import read_ring
from ftforensics.wire.ring_newest import newest_of_ring
from synth.ring import HEADER_BYTES, SLOT, TABLE_AT, fast, group, mark, ring_bytes, sig, slow

FAST = TABLE_AT + 16 * 6


def large(count: int = 500, spare: int = 3) -> bytes:
    return ring_bytes(
        rank=3,
        cgroup=["0::/job"],
        fast=[fast(100 + at / 10, rss_anon=at) for at in range(count)],
        slow=[slow(100.0 + at, groups=[group("/job", usage=at)]) for at in range(count // 10)],
        signals=[sig(120.0, 15, pid=7)],
        marks=[mark(100.0 + at, "step", str(at)) for at in range(100)],
        phase="train",
        spare=spare,
    )


def newest(data: bytes) -> bytes | None:
    return newest_of_ring(lambda offset, size: data[offset : offset + size], len(data))


def read(data: bytes | None) -> Ring:
    assert data is not None
    ring = read_ring(data)
    assert isinstance(ring, Ring)
    return ring


def place(data: bytes) -> tuple[int, int]:
    """Offset and slots of the fast samples."""
    return int.from_bytes(data[FAST : FAST + 8], "little"), int.from_bytes(data[FAST + 12 : FAST + 16], "little")


def turned(data: bytes, by: int) -> bytes:
    """With the fast samples of a recorder that has gone round: `by` of them again, over the oldest."""
    made = bytearray(data)
    offset, count = place(data)
    for number in range(count + 1, count + by + 1):
        at = offset + (number - 1) % count * SLOT["fast"]
        made[at : at + 8] = made[at + 56 : at + 64] = number.to_bytes(8, "little")
        made[at + 8 : at + 16] = round((1000 + number) * 1e9).to_bytes(8, "little")
    return bytes(made)


@pytest.mark.parametrize("spare", [0, 3])
def test_it_is_a_ring_of_the_newest(spare: int) -> None:
    data = large(spare=spare)
    cut, whole = read(newest(data)), read(data)
    assert len(cut.fast) == 12 and cut.fast == whole.fast[-12:]
    assert [one.at for one in cut.slow] == [one.at for one in whole.slow[-3:]]
    assert [one.reading.groups for one in cut.slow if one.reading] == [
        one.reading.groups for one in whole.slow[-3:] if one.reading
    ]
    assert cut.marks == whole.marks[-12:]
    for name in ("process", "signals", "step", "phase", "last", "end", "period", "thread_names", "gaps"):
        assert getattr(cut, name) == getattr(whole, name), name
    assert len(newest(data) or b"") < len(data) / 2


@pytest.mark.parametrize("by", [1, 2, 11, 12, 13, 250, 499, 500, 501, 777])
def test_wherever_the_newest_stands(by: int) -> None:
    data = turned(large(spare=0), by)
    assert read(newest(data)).fast == read(data).fast[-12:]


@pytest.mark.parametrize("by", [1, 5, 250, 499, 500])
def test_while_a_slot_is_being_written(by: int) -> None:
    data = bytearray(turned(large(spare=0), by))
    offset, count = place(bytes(data))
    at = offset + by % count * SLOT["fast"]
    data[at : at + 8] = data[at + 56 : at + 64] = bytes(8)
    found = newest(bytes(data))
    assert found is None or read(found).fast == read(bytes(data)).fast[-12:]
    assert found is not None or by % count == 0  # the first slot in the making: a rare case, read whole


def test_an_empty_one() -> None:
    data = ring_bytes(spare=20)
    assert read(newest(data)).fast == [] and read(newest(data)).gaps == read(data).gaps


def test_a_cut_one_is_read_whole() -> None:
    data = large()
    assert all(newest(data[:length]) is None for length in (0, 10, HEADER_BYTES, 5000, len(data) - 1))


def test_damage_is_refused_or_changes_nothing_else() -> None:
    data = large()
    chance = random.Random(1)
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 3, 40))):
            broken[chance.randrange(len(broken) if chance.random() < 0.5 else 600)] = chance.randrange(256)
        found = newest(bytes(broken))
        if found is not None:
            read_ring(found)
            assert len(found) <= len(data) + HEADER_BYTES

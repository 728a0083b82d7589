from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers.proc_maps import AddressSpace, parse_mapping


def test_a_line_of_a_deleted_file_with_spaces_in_its_name() -> None:
    mapping = parse_mapping("7f00-8000 rw-s 00001000 00:19 9    /dev/shm/a b (deleted)\n")
    assert mapping is not None
    assert (mapping.start, mapping.end, mapping.permissions, mapping.offset) == (0x7F00, 0x8000, "rw-s", 0x1000)
    assert (mapping.path, mapping.deleted, mapping.is_file, mapping.size) == ("/dev/shm/a b", True, True, 0x100)


@pytest.mark.parametrize("line", ["", "zebra", "7f00-8000", "8000-7f00 rw-p 0 00:00 0", "7f00-8000 rw-p zz 00:00 0 x"])
def test_a_line_that_is_none(line: str) -> None:
    assert parse_mapping(line) is None


def test_the_first_and_the_last_byte_of_a_mapping() -> None:
    space = AddressSpace(["2000-3000 r--p 0 00:00 0", "1000-2000 ---p 0 00:00 0", "torn li"])
    assert [space.at(address).start if space.at(address) else None for address in (0xFFF, 0x1000, 0x1FFF, 0x2000)] == [
        None,
        0x1000,
        0x1000,
        0x2000,
    ]
    assert space.at(0x3000) is None
    above = space.above(0x1FFF)
    assert above is not None and above.start == 0x2000
    assert space.above(0x2000) is None
    assert not AddressSpace([])


def test_this_process() -> None:
    with open("/proc/self/maps") as lines:
        listed = lines.read().splitlines()
    assert len(AddressSpace(listed).mappings) == len(listed)


@given(st.text(max_size=80))
def test_any_text(line: str) -> None:
    parse_mapping(line)

"""_native.nearest_symbols: which of many symbols names an address.

The tables are written by hand with struct, so that each rule stands alone; the layout (Elf64_Sym, man 5 elf) is stated
here a second time on purpose.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftforensics._native import nearest_symbols

NOTYPE, OBJECT, FUNC, TLS, IFUNC = 0, 1, 2, 6, 10
LOCAL, GLOBAL, WEAK = 0, 1, 2
UNDEFINED, ABSOLUTE = 0, 0xFFF1

Row = tuple[bytes, int, int, int, int, int]  # name, value, size, type, binding, section


def row(name: str, value: int, size: int = 0x10, kind: int = FUNC, bind: int = GLOBAL, section: int = 1) -> Row:
    return (name.encode(), value, size, kind, bind, section)


def write_tables(path: Path, rows: list[Row]) -> tuple[bytes, int, int, int, int]:
    """A file with 16 bytes of something, the symbols, the names. Returns the first five arguments."""
    names = b"\0"
    symbols = b""
    for name, value, size, kind, bind, section in rows:
        symbols += struct.pack("<IBBHQQ", len(names) if name else 0, bind << 4 | kind, 0, section, value, size)
        names += name + b"\0"
    path.write_bytes(b"x" * 16 + symbols + names)
    return (os.fsencode(path), 16, len(symbols), 16 + len(symbols), len(names))


def name_at(path: Path, rows: list[Row], address: int) -> str | None:
    (found,) = nearest_symbols(*write_tables(path, rows), [address])
    return None if found is None else found[2].decode()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def test_the_symbol_that_holds_the_address(table: Path) -> None:
    rows = [row("before", 0x100), row("at", 0x200), row("after", 0x300)]
    arguments = write_tables(table, rows)

    found = nearest_symbols(*arguments, [0x20F, 0x200, 0x300, 0x1FF, 0xFF, 0x310])

    assert found == [(0x200, 0x10, b"at"), (0x200, 0x10, b"at"), (0x300, 0x10, b"after"), None, None, None]


def test_an_address_past_the_symbol_has_no_name(table: Path) -> None:
    assert name_at(table, [row("f", 0x100, 0x10)], 0x110) is None


def test_a_label_without_size_reaches_on(table: Path) -> None:
    assert name_at(table, [row("_start", 0x100, 0)], 0x1234) == "_start"


def test_a_label_ends_where_a_sized_function_began(table: Path) -> None:
    rows = [row("_init", 0x100, 0), row("f", 0x200, 0x10)]
    assert name_at(table, rows, 0x1FF) == "_init"
    assert name_at(table, rows, 0x208) == "f"
    assert name_at(table, rows, 0x210) is None  # behind f: neither f nor, across f, _init


def test_the_inner_of_nested_functions(table: Path) -> None:
    rows = [row("outer", 0x100, 0x100), row("inner", 0x140, 0x10)]
    assert name_at(table, rows, 0x148) == "inner"
    assert name_at(table, rows, 0x150) == "outer"


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (row("z", 0x100, kind=FUNC, bind=LOCAL), row("a", 0x100, kind=NOTYPE, bind=GLOBAL)),
        (row("z", 0x100, bind=GLOBAL), row("a", 0x100, bind=WEAK)),
        (row("z", 0x100, bind=WEAK), row("a", 0x100, bind=LOCAL)),
        (row("z", 0x100, 0x20), row("a", 0x100, 0x10)),
        (row("a", 0x100), row("z", 0x100)),
        (row("a", 0x100), row("aa", 0x100)),
        (row("z", 0x100, kind=IFUNC), row("a", 0x100, kind=NOTYPE)),
    ],
    ids=["function", "global", "weak", "larger", "name", "shorter-name", "ifunc"],
)
def test_aliases_whatever_their_order_in_the_file(table: Path, better: Row, worse: Row) -> None:
    expected = better[0].decode()
    assert name_at(table, [better, worse], 0x108) == expected
    assert name_at(table, [worse, better], 0x108) == expected


@pytest.mark.parametrize(
    "nothing",
    [
        row("data", 0x100, kind=OBJECT),
        row("thread", 0x100, kind=TLS),
        row("imported", 0x100, section=UNDEFINED),
        row("version", 0x100, section=ABSOLUTE),
        row("", 0x100),
        row("$x", 0x100, 0, kind=NOTYPE, bind=LOCAL),
        row(".L42", 0x100, 0, kind=NOTYPE, bind=LOCAL),
    ],
    ids=["object", "tls", "undefined", "absolute", "nameless", "mapping-symbol", "assembler-label"],
)
def test_what_names_no_code(table: Path, nothing: Row) -> None:
    assert name_at(table, [nothing], 0x100) is None
    assert name_at(table, [row("f", 0x80, 0), nothing], 0x100) == "f"


def test_the_order_and_repeats_of_the_question_are_kept(table: Path) -> None:
    arguments = write_tables(table, [row("f", 0x100), row("g", 0x200)])
    names = [found[2] if found else None for found in nearest_symbols(*arguments, (0x200, 0x100, 0, 0x200, 2**64 - 1))]
    assert names == [b"g", b"f", None, b"g", None]


def test_no_address_no_answer(table: Path) -> None:
    assert nearest_symbols(*write_tables(table, [row("f", 0x100)]), []) == []


def test_more_symbols_than_one_read_takes(table: Path) -> None:
    rows = [row(f"f{i}", 0x1000 + 0x10 * i) for i in range(20_001)]
    arguments = write_tables(table, rows)
    found = nearest_symbols(*arguments, [0x1000 + 0x10 * i + 5 for i in (0, 8191, 8192, 20_000)])
    assert [symbol and symbol[2] for symbol in found] == [b"f0", b"f8191", b"f8192", b"f20000"]


def test_a_long_name_is_whole_and_a_huge_one_is_cut(table: Path) -> None:
    assert name_at(table, [row("n" * 9000, 0x100)], 0x100) == "n" * 9000
    assert name_at(table, [row("n" * 70_000, 0x100)], 0x100) == "n" * 65_536


def test_a_name_without_an_end_stops_at_the_table(table: Path) -> None:
    path, symbols, size, names, names_size = write_tables(table, [row("endless", 0x100)])
    with table.open("ab") as file:
        file.write(b"BEHIND")
    (found,) = nearest_symbols(path, symbols, size, names, names_size - 1, [0x100])
    assert found == (0x100, 0x10, b"endless")


def test_a_name_behind_the_table_is_none(table: Path) -> None:
    path, symbols, size, names, names_size = write_tables(table, [row("f", 0x100), row("g", 0x100)])
    assert nearest_symbols(path, symbols, size, names, names_size, [0x100]) == [(0x100, 0x10, b"f")]
    assert nearest_symbols(path, symbols, size, names, 1, [0x100]) == [None]


def test_a_size_that_overflows_the_address_space(table: Path) -> None:
    assert name_at(table, [row("f", 0x100, 2**64 - 1)], 2**64 - 2) == "f"


@pytest.mark.parametrize(
    "where",
    [(16, 1 << 40, 40, 3), (1 << 40, 24, 40, 3), (16, 24, 1 << 63, 3), (16, 24, 40, 2**64 - 1), (2**64 - 8, 24, 40, 3)],
)
def test_tables_outside_the_file_are_refused(table: Path, where: tuple[int, int, int, int]) -> None:
    path = write_tables(table, [row("f", 0x100)])[0]
    with pytest.raises(ValueError, match="outside"):
        nearest_symbols(path, *where, [0x100])


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="regular"):
        nearest_symbols(os.fsencode(tmp_path / "fifo"), 0, 0, 0, 0, [1])
    with pytest.raises(FileNotFoundError):
        nearest_symbols(os.fsencode(tmp_path / "absent"), 0, 0, 0, 0, [1])
    with pytest.raises(ValueError, match="null byte"):
        nearest_symbols(b"a\0b", 0, 0, 0, 0, [1])


@pytest.mark.parametrize("address", [-1, 2**64, "1", 1.5, None])
def test_what_is_no_address_is_refused(table: Path, address: object) -> None:
    with pytest.raises((OverflowError, TypeError)):
        nearest_symbols(*write_tables(table, [row("f", 0x100)]), [address])  # type: ignore[list-item]


def slow_search(rows: list[Row], address: int) -> tuple[int, int, bytes] | None:
    """The rules again, in the plainest form."""

    def rank(one: Row) -> tuple[int, bool, int, int, bytes]:
        name, value, size, kind, bind, _ = one
        return (-value, kind == NOTYPE, {GLOBAL: 0, WEAK: 1, LOCAL: 2}[bind], -size, name)

    code = [one for one in rows if one[3] in (FUNC, NOTYPE, IFUNC) and one[5] not in (UNDEFINED, ABSOLUTE)]
    functions = [one for one in code if one[0]]
    sized = [one for one in functions if one[2]]
    covering = sorted((one for one in sized if one[1] <= address < one[1] + one[2]), key=rank)
    if covering:
        return (covering[0][1], covering[0][2], covering[0][0])
    labels = sorted((one for one in functions if not one[2] and one[1] <= address), key=rank)
    if labels and not any(labels[0][1] < one[1] + one[2] <= address for one in sized):
        return (labels[0][1], 0, labels[0][0])
    return None


rows_strategy = st.lists(
    st.tuples(
        st.text("abc", max_size=2).map(str.encode),
        st.integers(0, 60),
        st.sampled_from([0, 0, 1, 3, 9, 40]),
        st.sampled_from([FUNC, NOTYPE, OBJECT, IFUNC]),
        st.sampled_from([LOCAL, GLOBAL, WEAK]),
        st.sampled_from([1, 2, UNDEFINED, ABSOLUTE]),
    ),
    max_size=25,
)


@settings(max_examples=400, deadline=None)
@given(rows=rows_strategy, addresses=st.lists(st.integers(0, 110), max_size=8))
def test_the_fast_search_agrees_with_the_slow_one(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], addresses: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "searched"
    assert nearest_symbols(*write_tables(path, rows), addresses) == [slow_search(rows, at) for at in addresses]

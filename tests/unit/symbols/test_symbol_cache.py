from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.symbols import cache as module
from ftforensics.symbols.cache import CachedSymbols, Entry, SymbolCache

ID = "0123456789abcdef0123456789abcdef01234567"
ENTRY = Entry(0x1234, 0x1200, b"_Z1fv")


@pytest.fixture
def cache(own_cache_directory: Path) -> SymbolCache:
    return SymbolCache.of_user()


@pytest.fixture
def folder(own_cache_directory: Path) -> Path:
    return own_cache_directory / "ftforensics" / "symbols-1"


def test_what_is_written_is_read(cache: SymbolCache, folder: Path) -> None:
    nothing = Entry(0x99)
    cache.write(ID, "symtab", [nothing], [ENTRY])
    assert cache.read(ID, "symtab") == {0x1234: ENTRY, 0x99: nothing}
    assert cache.read(ID, "dynsym") == {}
    assert cache.read(ID[::-1], "symtab") == {}
    assert os.listdir(folder) == [f"{ID}.symtab.msgpack"]


def test_nobody_else_may_read_or_change_it(cache: SymbolCache, folder: Path) -> None:
    old = os.umask(0)
    try:
        cache.write(ID, "symtab", [], [ENTRY])
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / f"{ID}.symtab.msgpack").stat().st_mode) == 0o600


def test_a_file_that_others_could_have_written_is_not_believed(cache: SymbolCache, folder: Path) -> None:
    cache.write(ID, "symtab", [], [ENTRY])
    file = folder / f"{ID}.symtab.msgpack"
    file.chmod(0o666)
    assert cache.read(ID, "symtab") == {}
    file.chmod(0o600)
    assert cache.read(ID, "symtab") != {}
    folder.chmod(0o777)
    assert cache.read(ID, "symtab") == {}
    before = file.read_bytes()
    cache.write(ID, "symtab", [], [Entry(1)])
    assert file.read_bytes() == before


def test_a_symbolic_link_is_not_followed(cache: SymbolCache, folder: Path, tmp_path: Path) -> None:
    cache.write(ID, "symtab", [], [ENTRY])
    file = folder / f"{ID}.symtab.msgpack"
    os.rename(file, tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert cache.read(ID, "symtab") == {}
    cache.write(ID, "symtab", [], [ENTRY])  # replaces the link, not what it points at
    assert not file.is_symlink()


@pytest.mark.parametrize("build_id", ["../../../../tmp/x", "", "AB" * 20, "00", "0" * 129, "a/b" * 10, ID + "\n"])
def test_a_build_id_that_is_none_touches_no_file(cache: SymbolCache, own_cache_directory: Path, build_id: str) -> None:
    cache.write(build_id, "symtab", [], [ENTRY])
    assert cache.read(build_id, "symtab") == {}
    assert not own_cache_directory.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xff",
        msgspec.msgpack.encode([ID, "symtab", [[1, "start", "name"]]]),
        msgspec.msgpack.encode(CachedSymbols(ID, "dynsym", [ENTRY])),
        msgspec.msgpack.encode(CachedSymbols("0" * 40, "symtab", [ENTRY])),
        b"\x91" * 5000,
        b"x" * ((1 << 20) + 1),
    ],
)
def test_a_damaged_file_is_as_none_and_is_replaced(cache: SymbolCache, folder: Path, content: bytes) -> None:
    cache.write(ID, "symtab", [], [Entry(1)])
    (folder / f"{ID}.symtab.msgpack").write_bytes(content)
    assert cache.read(ID, "symtab") == {}
    cache.write(ID, "symtab", [], [ENTRY])
    assert cache.read(ID, "symtab") == {0x1234: ENTRY}


@given(data=st.data())
def test_any_damage(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    cache = SymbolCache(folder)
    cache.write(ID, "symtab", [], [ENTRY, Entry(2), Entry(3, 1, b"g")])
    file = folder / f"{ID}.symtab.msgpack"
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    assert isinstance(cache.read(ID, "symtab"), dict)


def test_a_full_file_keeps_the_newest_answers(cache: SymbolCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_LIMIT", 2000)
    cache.write(ID, "symtab", [Entry(i, i, b"n" * 50) for i in range(100)], [ENTRY])
    assert cache.read(ID, "symtab") == {0x1234: ENTRY}
    cache.write(ID, "symtab", [], [Entry(i, i, b"n" * 50) for i in range(100)])  # does not fit at all
    assert cache.read(ID, "symtab") == {0x1234: ENTRY}


@pytest.mark.parametrize(("files", "total"), [(3, 1 << 20), (100, 1000)])
def test_the_oldest_files_go(
    cache: SymbolCache, folder: Path, monkeypatch: pytest.MonkeyPatch, files: int, total: int
) -> None:
    monkeypatch.setattr(module, "FILES_LIMIT", files)
    monkeypatch.setattr(module, "TOTAL_LIMIT", total)
    for i in range(6):
        build_id = f"{i:040x}"
        cache.write(build_id, "symtab", [], [Entry(1, 1, b"n" * 300)])
        os.utime(folder / f"{build_id}.symtab.msgpack", (i, i))
    cache.write(f"{6:040x}", "symtab", [], [ENTRY])
    kept = [i for i in range(7) if cache.read(f"{i:040x}", "symtab")]
    assert kept == [4, 5, 6]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache = SymbolCache.of_user()
    cache.write(ID, "symtab", [], [ENTRY])
    assert cache.read(ID, "symtab") == {}


def test_a_relative_cache_home_counts_as_unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    SymbolCache.of_user().write(ID, "symtab", [], [ENTRY])
    assert (tmp_path / ".cache" / "ftforensics" / "symbols-1").is_dir()


def test_no_cache() -> None:
    cache = SymbolCache(None)
    cache.write(ID, "symtab", [], [ENTRY])
    assert cache.read(ID, "symtab") == {}

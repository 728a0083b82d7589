"""Files that lie: nothing raises, nothing crashes, whatever a file on disk says about itself."""

from __future__ import annotations

import os
import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftforensics.host.host import Host
from ftforensics.model.basics import Address
from ftforensics.model.crash import Module
from ftforensics.symbols import debug_files
from ftforensics.symbols.elf import Elf, ElfError, read_elf
from ftforensics.symbols.resolve import Symbolizer

SOURCE = "static int hidden(int x) { return x * 3; } int exported(int x) { return hidden(x) + 1; }"
ADDRESSES = [0x10000 + offset for offset in (0, 0x1000, 0x1020, 0x1101, 0x1200, 0x2000, 0x4010)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The content of a small library, and its build-id."""
    path = tmp_path_factory.mktemp("hostile") / "libtiny.so"
    command = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-O0", "-Wl,--build-id=sha1", "-o", str(path)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    with path.open("rb") as file:
        build_id = read_elf(file.fileno()).build_id
    assert build_id is not None
    return path.read_bytes(), build_id


def symbolize(path: Path, content: bytes, build_id: str | None) -> None:
    path.write_bytes(content)
    module = Module(path=str(path), base=Address(0x10000), end=Address(0x20000), build_id=build_id)
    symbolizer = Symbolizer([module], Host())
    locations = symbolizer.addresses(ADDRESSES)
    assert [one.library for one in locations] == [str(path)] * len(ADDRESSES)
    assert all(isinstance(gap.why, str) for gap in symbolizer.gaps())


def header_places(content: bytes) -> list[int]:
    """Where a lie hurts: ELF header, program headers, section headers, notes, symbols."""
    (sections,) = struct.unpack_from("<Q", content, 40)
    return [*range(4, 64 + 56 * 12), *range(sections, len(content))]


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_changed_bytes(
    library: tuple[bytes, str], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    original, build_id = library
    content = bytearray(original)
    places = header_places(original)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.sampled_from(places) | st.integers(0, len(content) - 1))
        new = data.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\xff" * 4]))
        content[at : at + len(new)] = new
    # With no recorded build-id and none in the file, even a file with a destroyed note is looked into.
    recorded = data.draw(st.sampled_from([build_id, None]))
    symbolize(tmp_path_factory.getbasetemp() / "changed.so", bytes(content), recorded)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_length(
    library: tuple[bytes, str], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content, build_id = library
    length = data.draw(st.integers(0, len(content)))
    symbolize(tmp_path_factory.getbasetemp() / "cut.so", content[:length], build_id)


@given(content=st.binary(max_size=300).map(b"\x7fELF\x02\x01".__add__))
def test_random_bytes_behind_the_magic(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.so"
    path.write_bytes(content)
    with path.open("rb") as file:
        try:
            read_elf(file.fileno())
        except ElfError as error:
            assert str(error)


def test_a_file_cut_between_the_headers_and_the_search(library: tuple[bytes, str], tmp_path: Path) -> None:
    """A mapped file would give SIGBUS here; a read comes up short, and the reader is told."""
    content, build_id = library
    path = tmp_path / "libcut.so"
    path.write_bytes(content)

    module = Module(path=str(path), base=Address(0x10000), end=Address(0x20000), build_id=build_id)

    class CuttingCache:
        """Asked between the two: the moment to cut."""

        def read(self, *_: object) -> dict[int, object]:
            os.truncate(path, 4096)
            return {}

        def write(self, *_: object) -> None:
            raise AssertionError("nothing was found out")

    symbolizer = Symbolizer([module], Host(), CuttingCache())  # type: ignore[arg-type]
    (location,) = symbolizer.addresses([0x11101])
    assert (location.library, location.function) == (str(path), None)
    assert len(symbolizer.gaps()) == 1


def test_embedded_symbols_of_terabytes_are_not_read(
    library: tuple[bytes, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file costs its author nothing; read into memory it would cost the reader the machine."""
    plain, packed = tmp_path / "libtiny.so", tmp_path / "packed"
    plain.write_bytes(library[0])
    packed.write_bytes(b"x")
    subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={packed}", str(plain)], check=True)
    content = bytearray(plain.read_bytes())
    (start,) = struct.unpack_from("<Q", content, 40)
    names = [section.name for section in _elf(plain).sections]
    struct.pack_into("<Q", content, start + 64 * names.index(".gnu_debugdata") + 32, 1 << 40)
    plain.write_bytes(content)
    os.truncate(plain, 2 << 40)
    asked: list[int] = []

    def pread(fd: int, size: int, offset: int) -> bytes:
        asked.append(size)
        return os.pread(fd, min(size, 1 << 20), offset)

    monkeypatch.setattr(debug_files, "os", SimpleNamespace(pread=pread))
    with plain.open("rb") as file, ExitStack() as stack:
        assert debug_files.unpack_embedded(file.fileno(), read_elf(file.fileno()), stack) is None
    assert not asked


def _elf(path: Path) -> Elf:
    with path.open("rb") as file:
        return read_elf(file.fileno())

"""The loader's cache: the same as ldconfig prints, written by the real ldconfig."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from conditions import needs_cc, needs_x86_64
from ftforensics.parsers.ld_so_cache import CachedLibrary, read_cache

LDCONFIG = shutil.which("ldconfig") or "/sbin/ldconfig"
PRINTED = re.compile(r"^\t(\S+) \(libc6,x86-64(?:, hwcap: \"([^\"]+)\")?\) => (.+)$", re.MULTILINE)
X86_64 = 62


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A cache of one folder with a library and one for better processors."""
    for name in ("lib/libone.so.1.2", "lib/glibc-hwcaps/x86-64-v3/libone.so.1.2", "lib/libtwo.so.7"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        soname = "libone.so.1" if "one" in name else "libtwo.so.7"
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target), f"-Wl,-soname,{soname}"]
        subprocess.run(command, input="int x;", text=True, check=True)
    return tmp_path


def ldconfig(folder: Path, layout: str = "new") -> bytes:
    conf, cache = folder / "ld.so.conf", folder / "cache"
    conf.write_text(f"{folder}/lib\n")
    subprocess.run([LDCONFIG, "-c", layout, "-C", cache, "-f", conf, f"{folder}/lib"], check=True, capture_output=True)
    return cache.read_bytes()


@needs_x86_64
def test_this_machines_cache() -> None:
    said = subprocess.run([LDCONFIG, "-p"], capture_output=True, text=True, check=True).stdout
    wanted = [(name, path, hwcap or None) for name, hwcap, path in PRINTED.findall(said)]
    found = read_cache(Path("/etc/ld.so.cache").read_bytes(), X86_64)
    assert [(entry.name, entry.path, entry.hwcap) for entry in found] == wanted
    assert ("libc.so.6", None) in {(entry.name, entry.hwcap) for entry in found}


def mine(made: Path, layout: str) -> list[CachedLibrary]:
    return [entry for entry in read_cache(ldconfig(made, layout), X86_64) if entry.path.startswith(str(made))]


@needs_cc
@needs_x86_64
def test_a_library_for_better_processors(made: Path) -> None:
    assert mine(made, "new") == [
        CachedLibrary("libtwo.so.7", f"{made}/lib/libtwo.so.7"),
        CachedLibrary("libone.so.1", f"{made}/lib/glibc-hwcaps/x86-64-v3/libone.so.1.2", "x86-64-v3"),
        CachedLibrary("libone.so.1", f"{made}/lib/libone.so.1"),
    ]


@needs_cc
@needs_x86_64
def test_behind_a_table_of_the_older_format(made: Path) -> None:
    assert mine(made, "compat") == [
        CachedLibrary("libtwo.so.7", f"{made}/lib/libtwo.so.7"),
        CachedLibrary("libone.so.1", f"{made}/lib/libone.so.1"),
    ]


@needs_cc
@needs_x86_64
def test_another_machines_entries_are_left_out(made: Path) -> None:
    assert read_cache(ldconfig(made), 183) == []


@needs_cc
@needs_x86_64
def test_the_oldest_layout_is_refused(made: Path) -> None:
    with pytest.raises(ValueError, match=r"not a cache of glibc 2\.2"):
        read_cache(ldconfig(made, "old"), X86_64)


@needs_cc
@needs_x86_64
def test_a_damaged_cache_is_a_value_error_or_read(made: Path) -> None:
    whole = ldconfig(made)
    for size in range(0, len(whole), 997):
        cut = whole[:size]
        if size < 48 + 24 * struct.unpack_from("<I", whole, 20)[0]:
            with pytest.raises(ValueError):
                read_cache(cut, X86_64)
        else:
            read_cache(cut, X86_64)
    for at in [*range(20, 48), *range(48, len(whole), 499)]:
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        with suppress(ValueError):
            assert len(read_cache(bytes(damaged), X86_64)) < 1 << 20


def test_what_is_no_cache() -> None:
    for content in (b"", b"ld.so-1.7.0", b"ld.so-1.7.0\0\xff\xff\xff\xff" + b"\0" * 64, b"\x7fELF" + b"\0" * 100):
        with pytest.raises(ValueError):
            read_cache(content, X86_64)

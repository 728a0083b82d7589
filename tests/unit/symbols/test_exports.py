"""Exported and wanted names of real little libraries, held against nm."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from conditions import needs_cc, needs_torch
from ftforensics.symbols.dynamic import Dynamic, read_dynamic
from ftforensics.symbols.elf import read_elf
from ftforensics.symbols.exports import Exports, dynamic_strings, undefined_names

Compile = Callable[..., Path]

SOURCE = """
extern int wanted(void), wanted_too;
extern int maybe(void) __attribute__((weak));
int given(void) { return wanted() + wanted_too + (maybe ? maybe() : 0); }
int value = 3;
int loose(void) __attribute__((weak));
int loose(void) { return 1; }
static int hidden(void) { return 2; }
__attribute__((visibility("hidden"))) int kept(void) { return hidden(); }
"""


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, Exports, Dynamic]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        elf = read_elf(fd)
        dynamic = read_dynamic(fd, elf)
        yield fd, Exports(fd, elf, dynamic), dynamic
    finally:
        os.close(fd)


@needs_cc
@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_what_is_exported(compile_library: Compile, style: str) -> None:
    path = compile_library(SOURCE, f"-Wl,--hash-style={style}", "-fno-builtin")
    with opened(path) as (_, exports, dynamic):
        assert (dynamic.gnu_hash is None) == (style == "sysv")
        asked = ("given", "value", "loose", "hidden", "kept", "wanted", "maybe", "x", "")
        found = {name for name in asked if exports.defines(name)}
    assert found == {"given", "value", "loose"}


@needs_cc
def test_a_file_that_cannot_be_read_says_so_when_it_is_asked(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    with opened(path) as (fd, _, dynamic):
        elf = read_elf(fd)
        unreadable = os.open(path, os.O_WRONLY)
        try:
            exports = Exports(unreadable, elf, dynamic)  # as of a network file system whose server went away
            with pytest.raises(OSError):
                exports.defines("given")
        finally:
            os.close(unreadable)


@needs_cc
def test_many_names_share_buckets(compile_library: Compile) -> None:
    names = [f"name_{number}" for number in range(3000)]
    path = compile_library("".join(f"int {name};" for name in names), "-Wl,--hash-style=gnu")
    with opened(path) as (_, exports, _dynamic):
        assert all(exports.defines(name) for name in names)
        assert not any(exports.defines(f"{name}_") for name in names)


@needs_cc
def test_what_is_wanted(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    with opened(path) as (fd, _, _dynamic):
        elf = read_elf(fd)
        assert sorted(undefined_names(fd, elf)) == ["wanted", "wanted_too"]
        assert b"\0maybe\0" in dynamic_strings(fd, elf)


@needs_cc
def test_dynamic_section(compile_library: Compile) -> None:
    flags = ("-Wl,-soname,libme.so.3", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/../lib", "-Wl,-z,nodefaultlib")
    with opened(compile_library("int x;", *flags, "-Wl,--no-as-needed")) as (_, _exports, dynamic):
        assert (dynamic.soname, dynamic.rpath, dynamic.runpath) == ("libme.so.3", None, "$ORIGIN/../lib")
        assert dynamic.needed == ("libc.so.6",) and dynamic.no_default_folders and dynamic.interpreter is None
    with opened(compile_library("int x;", "-Wl,--disable-new-dtags", "-Wl,-rpath,/a:/b")) as (_, _exports, dynamic):
        assert (dynamic.soname, dynamic.rpath, dynamic.runpath) == (None, "/a:/b", None)
        assert not dynamic.no_default_folders


@needs_cc
def test_damaged_files_give_an_answer_or_an_oserror(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    whole = path.read_bytes()
    hurt = path.with_name("libhurt.so")
    with opened(path) as (_, _exports, dynamic):
        assert dynamic.gnu_hash is not None and dynamic.symbols is not None
        table = dynamic.gnu_hash
    for at in [*range(64, 1000, 3), *range(table, table + 64), *range(len(whole) - 4000, len(whole), 37)]:
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        hurt.write_bytes(damaged)
        with suppress(OSError, ValueError, OverflowError), opened(hurt) as (fd, exports, _dynamic):
            exports.defines("given")
            undefined_names(fd, read_elf(fd))


@needs_torch
def test_torchs_own_names_quickly() -> None:
    """Everything that libtorch_python wants from libtorch_cpu, and nothing that nm does not show."""
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin
    library = Path(spec.origin).parent / "lib/libc10.so"
    shown = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = [line.split()[2].partition("@")[0] for line in shown.splitlines()]
    assert len(names) > 1000
    with opened(library) as (_, exports, _dynamic):
        assert all(exports.defines(name) for name in names)
        assert not any(exports.defines(f"{name}x") for name in names)

"""How csrc/ compiles, and what the built extension shows to the dynamic linker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conditions import ROOT
from toolchain import CSRC, TOOLCHAINS, Toolchain, context

EXTENSION = ROOT / "src" / "ftforensics" / "_native.abi3.so"


@pytest.mark.parametrize("toolchain", TOOLCHAINS, ids=str)
def test_every_file_compiles_without_a_warning(toolchain: Toolchain, tmp_path: Path) -> None:
    failed = {}
    for source in sorted(CSRC.glob("*.c")):
        made = toolchain.compile(source, tmp_path / "out.o", "-Wall", "-Wextra", "-Werror")
        if made.returncode != 0:
            failed[source.name] = made.stderr
    assert failed == {}


def test_each_header_stands_alone(tmp_path: Path) -> None:
    failed = {}
    for header in sorted(CSRC.glob("*.h")):
        alone = tmp_path / f"{header.stem}_alone.c"
        first = "#include <Python.h>\n" if context(header) == "NORMAL" else ""
        alone.write_text(f'{first}#include "{header.name}"\n')
        # Unused static functions are a header's nature, not a fault of it.
        made = TOOLCHAINS[0].compile(alone, tmp_path / "out.o", "-Werror", "-Wno-unused-function")
        if made.returncode != 0:
            failed[header.name] = made.stderr
    assert failed == {}


def _readelf(*options: str) -> str:
    return subprocess.run(["readelf", *options, str(EXTENSION)], capture_output=True, text=True, check=True).stdout


def test_nothing_is_bound_lazily() -> None:
    """A first call through a lazy PLT slot takes the loader's lock, inside a handler."""
    dynamic = _readelf("--dynamic", "--wide")
    assert "BIND_NOW" in dynamic or "NOW" in dynamic.split("FLAGS_1", 1)[-1]
    assert "TEXTREL" not in dynamic


def test_only_the_module_is_exported() -> None:
    made = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(EXTENSION)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line.split()[0] for line in made.stdout.splitlines()} == {"PyInit__native"}

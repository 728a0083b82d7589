"""Real little libraries, compiled where a test wants them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Compile = Callable[..., Path]


@pytest.fixture
def compile_library(tmp_path: Path) -> Compile:
    """compile_library(source, *flags, name="libtiny.so", language="c") -> the path of a new shared library.

    Each has a build-id that depends on its content, unless flags say otherwise.
    """

    def make(source: str, *flags: str, name: str = "libtiny.so", language: str = "c") -> Path:
        path = tmp_path / name
        command = ["gcc", "-x", language, "-", "-shared", "-fPIC", "-O1", "-Wl,--build-id=sha1", "-o", str(path)]
        subprocess.run([*command, *flags], input=source, text=True, check=True)
        return path

    return make


@pytest.fixture(autouse=True)
def own_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or fills the cache of the person who runs it."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    return directory

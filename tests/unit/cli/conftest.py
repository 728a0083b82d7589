"""The command line as a person meets it: real processes where the system matters, `main` in this process elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ftforensics.cli import main


class Shown:
    """What one run of the command gave. `complaint` is what it said on standard error, without a line feed."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @property
    def complaint(self) -> str:
        assert "Traceback" not in self.err
        assert self.err.count("\n") == 1, f"one line expected, got: {self.err!r}"
        assert self.err.startswith("ftforensics: ")
        return self.err.removesuffix("\n")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shown]:
    """`main` in this process."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: object) -> Shown:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Shown(status, captured.out, captured.err)

    return call


@pytest.fixture
def environment(root: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    return {**inherited, "PYTHONPATH": str(root / "src")}


@pytest.fixture
def command() -> list[str]:
    return [sys.executable, "-m", "ftforensics"]


@pytest.fixture
def shell(environment: Mapping[str, str], tmp_path: Path) -> Callable[[str], Shown]:
    """A bash line in which $ft is the command; the status is the line's, with pipefail."""

    def call(line: str) -> Shown:
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            env={**environment, "ft": f"{sys.executable} -m ftforensics"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Shown(ended.returncode, ended.stdout, ended.stderr)

    return call


@pytest.fixture
def example(root: Path) -> bytes:
    return (root / "docs" / "example.crash.json").read_bytes()


@pytest.fixture
def record(example: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "gpu-07-rank0.crash.json"
    path.write_bytes(example)
    return path

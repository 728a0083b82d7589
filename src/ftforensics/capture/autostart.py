"""Capture in every Python of a job that was started by `ftforensics run`, without a line in its code.

`ftforensics-run.pth` lies in site-packages. The site module executes its one line at every start of the interpreter;
unless FTFORENSICS_RUN is in the environment, that line looks for it and does nothing else. There is no sitecustomize,
which belongs to whoever runs the machine, and of which there can be one only.
"""

from __future__ import annotations

import os
import sys

ASKED = "FTFORENSICS_RUN"
# `run` asks a job's interpreter whether it gets here at all; then it shall not start anything.
PROBE = "probe"

# Processes of the standard library that run none of the job's code. The resource tracker outlives the job's processes.
_TRACKER = "from multiprocessing.resource_tracker import main"
_OWN_COMMAND = "from ftforensics.cli import main"


def start() -> None:
    """Never raises and never prints: the program that starts here does not know of us."""
    try:
        if os.environ.get(ASKED, PROBE) == PROBE:
            return
        own = _own_command(sys.orig_argv)
        if own is not None:
            # A report that is made inside the job is no part of the job, nor is what it starts. What `run` starts is,
            # and `run` has to know that another one is above it.
            if own != "run":
                del os.environ[ASKED]
            return
        if any(argument.startswith(_TRACKER) for argument in sys.orig_argv[1:]):
            return
        from ftforensics.capture.session import install_unasked

        install_unasked()
    except Exception:
        pass


def _own_command(argv: list[str]) -> str | None:
    """The first argument of the command `ftforensics`, however it was started: as a script, by -m, by our own -c.

    None: another program; empty: without an argument."""
    for index, argument in enumerate(argv[1:], 1):
        if argument in ("-m", "-c"):
            word = argv[index + 1] if index + 1 < len(argv) else ""
            ours = word == "ftforensics" if argument == "-m" else _OWN_COMMAND in word
            return "".join(argv[index + 2 : index + 3]) if ours else None
        if not argument.startswith("-"):
            return "".join(argv[index + 1 : index + 2]) if os.path.basename(argument) == "ftforensics" else None
    return None

"""`--on-failure CMD`: the person's own command (mail, chat), told what happened through its environment."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE = 60.0  # seconds


def run_on_failure(command: str, told: Mapping[str, str], patience: float = PATIENCE) -> str | None:
    """Run it by sh. What it prints goes to our standard error. None when it ended well, else half a sentence; it
    changes nothing. told: variables for it.

    It gets a session of its own, so that all of it can be ended when it takes too long.
    """
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"could not be started: {error}"
    try:
        code = process.wait(patience)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"took more than {patience:g} s and was ended"
    except BaseException:
        _end(process)
        raise
    if code < 0:
        return f"died of signal {-code}"
    return f"ended with status {code}" if code else None


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

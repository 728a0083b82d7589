"""One line on standard error that says what takes so long. Only on a terminal, and only after a while."""

from __future__ import annotations

import os
import sys
import time

from ftforensics.report.escape import printable, shortened

PATIENCE = 0.4  # seconds before the first word
INTERVAL = 0.1  # seconds between two


class Progress:
    """with Progress() as progress: progress.say("reading 3 of 8"). The line is wiped at the end."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PATIENCE
        self._shown = False
        self._live = _is_terminal()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._shown:
            self._write("\r\x1b[K")

    def say(self, text: str) -> None:
        now = time.monotonic()
        if not self._live or now < self._next:
            return
        self._next = now + INTERVAL
        self._shown = True
        self._write(f"\r\x1b[K{shortened(printable(text), 76)}")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._live = False


def _is_terminal() -> bool:
    if os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False

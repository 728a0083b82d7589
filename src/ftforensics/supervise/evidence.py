"""`evidence.jsonl`: what was seen, one JSON object a line, written as it happens (`model.run` has the members).

Each line is one write to a file opened with O_APPEND, so that the supervisor's own death costs at most the line it was
writing. A full disk costs lines, never the job.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ftforensics.capture.identity import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftforensics.capture.identity import Value

SCHEMA = "ftforensics.evidence/1"
NAME = "evidence.jsonl"
# A job that starts a process a second for a week must not fill the disk with the ends of processes that ended well.
MOST_OF_A_KIND = 10_000
_KINDS_WITHOUT_LIMIT = ("started", "ended", "gap")


class Evidence:
    """An open evidence file. path: None when there is nowhere to write; then everything is dropped."""

    def __init__(self, path: str | None) -> None:
        self.path: str | None = None
        self._fd: int | None = None
        self._written: dict[str, int] = {}
        self._gaps: set[str] = set()
        self._held: list[bytes] | None = []  # until the first line, `started`, which waits for what can be armed
        if path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
            # Held for life: whoever can take it knows that this supervisor is gone. Some file systems have no locks.
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.path = path

    def write(self, kind: str, members: Mapping[str, Value], at: float | None = None) -> None:
        """One line. at: CLOCK_MONOTONIC, now when not given."""
        count = self._written[kind] = self._written.get(kind, 0) + 1
        if count > MOST_OF_A_KIND and kind not in _KINDS_WITHOUT_LIMIT:
            if count == MOST_OF_A_KIND + 1:
                self.gap("run", f"more than {MOST_OF_A_KIND} events of the kind {kind!r}; the rest was not kept")
            return
        now = time.monotonic() if at is None else at
        self._append({"type": kind, **members, "at": round(now, 6)})

    def gap(self, source: str, why: str, grant: str | None = None) -> None:
        """Something that could not be seen, said once."""
        if why in self._gaps or len(self._gaps) > 1000:
            return
        self._gaps.add(why)
        self._append({"type": "gap", "gap": {"source": source, "why": why, "grant": grant}})

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, line: dict[str, Value]) -> None:
        text = json_text(line).encode("utf-8", "backslashreplace") + b"\n"
        lines = [text]
        if self._held is not None:
            if line["type"] != "started":
                self._held.append(text)
                return
            lines += self._held
            self._held = None
        if self._fd is None:
            return
        for text in lines:
            try:
                os.write(self._fd, text)
            except OSError:
                return  # a full disk: the next line may find room again


def clocks() -> dict[str, Value]:
    """The three clocks at one instant (`model.ring.ClockPair`)."""
    return {
        "realtime": time.time(),
        "monotonic": time.monotonic(),
        "boottime": time.clock_gettime(time.CLOCK_BOOTTIME),
    }

"""Jobs under `ftforensics run`: how they are started, a terminal to start them on."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conditions import ROOT
from ftforensics.model.run import RunEvidence
from ftforensics.wire.run_evidence import read_run_evidence

RUN = [sys.executable, "-m", "ftforensics", "run"]
PATIENCE = 30.0


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FTFORENSICS", "SLURM"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), **more}


@dataclass(frozen=True)
class Ended:
    """status: as subprocess says it, -signal or code."""

    status: int
    out: bytes
    err: bytes
    folder: Path

    @property
    def evidence(self) -> RunEvidence:
        return read_run_evidence((self.folder / "evidence.jsonl").read_bytes())


class Terminal:
    """A pseudo-terminal, and a session on it as a login makes one."""

    def __init__(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int] = (24, 80)):
        self.master, self.slave = os.openpty()
        self.resize(*size)
        self.text = b""
        self.process = subprocess.Popen(
            # The new session leader takes the terminal as its own by opening it (man 4 tty).
            [sys.executable, "-c", _LOGIN, os.ttyname(self.slave), *command],
            cwd=cwd,
            env=dict(env),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
        )

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def expect(self, wanted: bytes, timeout: float = PATIENCE) -> bytes:
        """Read until `wanted` stands in what came since the last expect(). Returns what came up to its end."""
        until = time.monotonic() + timeout
        while wanted not in self.text:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{wanted!r} did not come; there is {self.text!r}")
            self.text += os.read(self.master, 65536)
        before, _, self.text = self.text.partition(wanted)
        return before + wanted

    def wait(self, timeout: float = PATIENCE) -> int:
        """The session leader's end. What it prints meanwhile is kept."""
        until = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < until, self.text
            if select.select([self.master], [], [], 0.05)[0]:
                self.text += os.read(self.master, 65536)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


_LOGIN = """
import os, signal, sys
os.close(os.open(sys.argv[1], os.O_RDWR))
os.tcsetpgrp(0, os.getpgrp())
os.execvp(sys.argv[2], sys.argv[2:])
"""


def wait_for(condition: Callable[[], object], timeout: float = PATIENCE) -> None:
    """For what has no handshake: a process's end seen from outside."""
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.01)

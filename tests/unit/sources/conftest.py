"""Machines for the sources' tests: folders with a machine's files, commands that answer what a test chooses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from conditions import CGROUP_V1_MEMORY
from ftforensics.host.host import Completed, Host, Refusal

BOOT = "0231076c-b8c6-43e7-81dc-7609325ca25a"


class Commands:
    """Answers by the program's name; a program without an answer is not installed. asked: every argv, in order."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Sequence[str]], Completed]] = {}
        self.asked: list[tuple[str, ...]] = []
        self.bounds: list[tuple[float, int]] = []  # seconds, bytes

    def says(self, program: str, stdout: bytes = b"", stderr: bytes = b"", status: int = 0, **more: bool) -> None:
        self.answers[program] = lambda argv: Completed(tuple(argv), status, stdout, stderr, **more)

    def __call__(self, argv: Sequence[str], timeout: float, limit: int) -> Completed:
        self.asked.append(tuple(argv))
        self.bounds.append((timeout, limit))
        if argv[0] not in self.answers:
            raise Refusal(argv[0], "No such file or directory", 2)
        return self.answers[argv[0]](argv)


@pytest.fixture
def commands() -> Commands:
    return Commands()


class Files:
    """A machine's files below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("/proc/sys/kernel/random/boot_id", BOOT + "\n")
        self.write("/proc/sys/kernel/hostname", "gpu-07\n")

    def write(self, path: str, content: str | bytes) -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place

    def folder(self, path: str) -> Path:
        place = self.root / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        return place


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "root")


@pytest.fixture
def machine(files: Files, commands: Commands) -> Host:
    """gpu-07, boot BOOT, at 2026-11-29 14:00:00 UTC."""
    return Host(root=files.root, run=commands, now=lambda: 1795960800.0)


EATER = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
print("in", flush=True)
sys.stdin.readline()
held = [bytearray(os.urandom(1)) * (1 << 20) for _ in range(500)]
"""


class Eater:
    """A process in a group that waits for `eat` and then wants 500 MB."""

    def __init__(self, group: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", EATER, str(group)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == b"in\n"
        self.lines = Path(f"/proc/{self.process.pid}/cgroup").read_text().splitlines()

    def eat(self) -> int:
        """Its wait status as subprocess gives it, once the kernel is done with it."""
        self.process.communicate(b"go\n", timeout=60)
        return self.process.returncode

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def limited_group() -> Iterator[Path]:
    """A version 1 memory group limited to 64 MB with one below it that has no limit: (above)/inner."""
    group = CGROUP_V1_MEMORY / f"ftforensics-test-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    inner = group / "inner"
    inner.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    memsw = group / "memory.memsw.limit_in_bytes"
    if memsw.exists():
        # Not the same: with two equal limits neither failcnt counts (6.18).
        memsw.write_text(str(128 << 20))
    yield group
    for folder in (inner, group):
        if folder.exists():
            folder.rmdir()


@pytest.fixture
def eater(limited_group: Path) -> Iterator[Eater]:
    one = Eater(limited_group / "inner")
    yield one
    one.end()


AsNobody = Callable[[Callable[[], list[str]]], list[str]]


@pytest.fixture
def as_nobody() -> AsNobody:
    """Runs a function in a child process that is user and group 65534 without capabilities, and gives its result."""

    def run(work: Callable[[], list[str]]) -> list[str]:
        mine, its = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)  # root to another: the kernel drops all capabilities
                os.write(its, json.dumps(work()).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(its)
        with os.fdopen(mine, "rb") as answer:
            said = answer.read()
        assert os.waitpid(child, 0)[1] == 0
        found: list[str] = json.loads(said)
        return found

    return run


@pytest.fixture
def public_files() -> Iterator[Files]:
    """Files that user 65534 can reach: pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Files(Path(folder))

"""How old is the last sample when a process is killed?

    PYTHONPATH=src python benchmarks/ring_age.py [--kills 100] [--ooms 100] [--python PATH]

Real deaths, one after the other: kill -9, and OOM kills in a version 1 memory group (needs root). After each the ring
must be readable and have no end mark. The age is the time from the last sample to the kill() call or to the kernel's
"Killed process" line. That line's clock runs beside CLOCK_MONOTONIC, so the difference is measured with a line of our
own. Below zero: the process was still sampled while it died. Reach: half of them at most one period old, none more than
two. Exit status 1 when out of reach.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ftforensics.model.ring import Ring
from ftforensics.wire.ring import read_ring

ROOT = Path(__file__).resolve().parent.parent
MEMORY = Path("/sys/fs/cgroup/memory")
PERIOD = 0.1
LIMIT = 192 << 20

VICTIM = """
import os, sys
if sys.argv[1:]:
    open(sys.argv[1], "w").write(str(os.getpid()))
import ftforensics
ftforensics.install(helper="none")
os.write(1, b"ready\\n")
os.read(0, 1)
if not sys.argv[1:]:
    os.read(0, 1)
blocks = []
while True:
    blocks.append(bytearray(b"x") * (4 << 20))
"""


@dataclass(frozen=True)
class Age:
    """seconds: from the last fast sample to the kill; period: what the recorder was keeping then."""

    seconds: float
    period: float


def start(python: str, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(folder)}
    process = subprocess.Popen(
        [python, "-c", VICTIM, *arguments],
        cwd=folder,
        env=environ | {"FTFORENSICS_DIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def finish(process: subprocess.Popen[bytes], folder: Path, killed: float) -> Age:
    assert process.wait(60) == -signal.SIGKILL
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
    (path,) = folder.glob(f"*-{process.pid}-*.ring")
    ring = read_ring(path.read_bytes(), path.name)
    assert isinstance(ring, Ring) and ring.end.how is None and ring.gaps == [], ring
    path.unlink()
    return Age(killed - ring.fast[-1].at, ring.period)


def kill(python: str, folder: Path, turn: int) -> Age:
    process = start(python, folder)
    time.sleep(0.25 + turn * 37 % 100 / 1000)  # anywhere in a period
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    process.kill()
    return finish(process, folder, now)


class KernelLog:
    """/dev/kmsg from now on."""

    def __init__(self) -> None:
        self.fd = os.open("/dev/kmsg", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self.fd, 0, os.SEEK_END)
        self.offset = self._offset()

    def close(self) -> None:
        os.close(self.fd)

    def _offset(self) -> float:
        """CLOCK_MONOTONIC less the log's clock."""
        word = f"ftforensics-clock-{os.getpid()}"
        before = time.clock_gettime(time.CLOCK_MONOTONIC)
        os.write(self.fd, f"{word}\n".encode())  # without a line feed the record stays open, unseen, for more
        after = time.clock_gettime(time.CLOCK_MONOTONIC)
        return (before + after) / 2 - self.wait_for(word)

    def wait_for(self, text: str) -> float:
        """When the log says `text`, by its own clock in seconds."""
        ends = time.monotonic() + 20
        while time.monotonic() < ends:
            try:
                record = os.read(self.fd, 8192).decode("utf-8", "replace")
            except BlockingIOError:
                time.sleep(0.002)
                continue
            except BrokenPipeError:
                continue  # it was overrun: the next read goes on with what is left
            if text in record:
                return int(record.split(",", 3)[2]) / 1e6
        raise TimeoutError(text)


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    group = MEMORY / f"ftforensics-age-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.05)


def oom(python: str, folder: Path, group: Path, log: KernelLog) -> Age:
    process = start(python, folder, str(group / "cgroup.procs"))
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    at = log.wait_for(f"Killed process {process.pid} ")
    return finish(process, folder, at + log.offset)


def kills(python: str, count: int) -> list[Age]:
    with tempfile.TemporaryDirectory() as folder:
        return [kill(python, Path(folder), turn) for turn in range(count)]


def ooms(python: str, count: int) -> list[Age]:
    log = KernelLog()
    try:
        with tempfile.TemporaryDirectory() as folder, memory_group(LIMIT) as group:
            return [oom(python, Path(folder), group, log) for _ in range(count)]
    finally:
        log.close()


def within_reach(ages: list[Age]) -> bool:
    seconds = [age.seconds for age in ages]
    return statistics.median(seconds) <= PERIOD and max(seconds) <= 2 * PERIOD


def describe(name: str, ages: list[Age]) -> str:
    values = sorted(age.seconds * 1000 for age in ages)
    marks = [values[min(len(values) - 1, int(len(values) * part))] for part in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1)]
    words = " ".join(f"{value:6.1f}" for value in marks)
    faster = sum(age.period < PERIOD for age in ages)
    verdict = "yes" if within_reach(ages) else "NO"
    return f"  {name:22} {len(ages):4}  {words}   {faster:4} faster   in reach: {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ooms", type=int, default=100)
    options = parser.parse_args()
    print(f"Age of the last sample, ms; period {PERIOD * 1000:.0f} ms; load {os.getloadavg()[0]:.1f}")
    print("                          deaths     min    10%    25%    50%    75%    90%    99%    max")
    good = True
    for name, run, count in (("kill -9", kills, options.kills), ("OOM in a memory group", ooms, options.ooms)):
        if count:
            ages = run(options.python, count)
            print(describe(name, ages), flush=True)
            good &= within_reach(ages)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())

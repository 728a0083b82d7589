"""Runs as root of a second kernel (second_kernel.py): real version 2 groups, kills, refusals, a ring written round.

Prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from ftforensics.host.host import Host, drain_ring
from ftforensics.model.kernel import OomKill
from ftforensics.model.reading import Reading
from ftforensics.sources.counters import read_counters
from ftforensics.sources.kernel_log import read_kernel_logs

GROUPS = Path("/sys/fs/cgroup")
EATER = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
print("in", flush=True)
sys.stdin.readline()
held = [bytearray(os.urandom(1)) * (1 << 20) for _ in range(500)]
"""


def group(path: str, limit: str) -> Path:
    place = GROUPS / path
    place.mkdir()
    (place / "memory.max").write_text(limit)
    return place


def eater(place: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", EATER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"in\n"
    return process


def lines(process: subprocess.Popen[bytes]) -> list[str]:
    return Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()


def counted(cgroup: list[str]) -> tuple[Reading, list[str]]:
    reading, gaps = read_counters(Host(), cgroup, Host().moment())
    return reading, [gap.why for gap in gaps]


def below_a_limit() -> dict[str, Any]:
    """The limit is the outer group's; the victim's own has none."""
    outer = group("outer", str(60 << 20))
    (outer / "cgroup.subtree_control").write_text("+memory")
    inner = group("outer/inner", "max")
    process = eater(inner)
    cgroup = lines(process)
    before, gaps = counted(cgroup)
    process.communicate(b"go\n")
    after, _ = counted(cgroup)
    inner.rmdir()
    gone, gone_gaps = counted(cgroup)
    outer.rmdir()
    return {
        "pid": process.pid,
        "status": process.returncode,
        "before": msgspec.to_builtins(before),
        "after": msgspec.to_builtins(after),
        "gone": msgspec.to_builtins(gone),
        "gaps": gaps,
        "gone_gaps": gone_gaps,
    }


def together() -> dict[str, Any]:
    """memory.oom.group: who wants too much takes the others along."""
    place = group("together", str(60 << 20))
    (place / "memory.oom.group").write_text("1")
    quiet, hungry = eater(place), eater(place)
    cgroup = lines(hungry)
    hungry.communicate(b"go\n")
    quiet.communicate(timeout=60)
    after, _ = counted(cgroup)
    return {
        "statuses": [quiet.returncode, hungry.returncode],
        "pids": [quiet.pid, hungry.pid],
        "after": msgspec.to_builtins(after),
    }


def kernel_log(since: float) -> dict[str, Any]:
    logs, gaps = read_kernel_logs(Host(), boot_id=None, since=since)
    return {
        "logs": [[log.source, log.gap_free, log.lines] for log in logs],
        "gaps": [[gap.why, gap.grant] for gap in gaps],
        "kills": [
            [event.pid, event.limit_group, event.victim_group, event.group_kill]
            for log in logs
            for event in log.events
            if isinstance(event, OomKill)
        ],
    }


def unprivileged(restrict: str) -> dict[str, Any]:
    Path("/proc/sys/kernel/dmesg_restrict").write_text(restrict)
    mine, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        os.write(its, json.dumps(kernel_log(time.time() - 1)).encode())
        os._exit(0)
    os.close(its)
    with os.fdopen(mine, "rb") as answer:
        found: dict[str, Any] = json.loads(answer.read())
    os.waitpid(child, 0)
    return found


def overrun() -> dict[str, Any]:
    """The ring is written round between the first read and the second."""
    Path("/proc/sys/kernel/printk_devkmsg").write_text("on\n")
    fd = os.open("/dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
    reads = 0

    def read() -> bytes:
        nonlocal reads
        reads += 1
        if reads == 2:
            for number in range(5000):
                os.write(fd, f"filler {number} {'x' * 500}\n".encode())
        return os.read(fd, 16384)

    ring = drain_ring(read, 1 << 30, time.monotonic() + 60)
    holes = [index for index, record in enumerate(ring.records) if record is None]
    return {"holes": holes, "records": len(ring.records), "cut": ring.cut, **kernel_log(time.time() - 1)}


def main() -> None:
    (GROUPS / "cgroup.subtree_control").write_text("+memory")
    start = time.time()
    print(
        json.dumps(
            {
                "below_a_limit": below_a_limit(),
                "together": together(),
                "log": kernel_log(start),
                "open": unprivileged("0"),
                "restricted": unprivileged("1"),
                "overrun": overrun(),
            }
        )
    )


main()

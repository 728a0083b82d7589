"""What the flight recorder costs a rank, and whether it keeps its pace while another thread holds the GIL.

    PYTHONPATH=src python benchmarks/recorder.py [--seconds 20] [--workers 16]

A rank with 16 forked children runs twice: with the recorder, whose thread's CPU time is read from /proc, and with a
Python thread that samples the same things by psutil ten times a second (resident sizes, memory of the machine, usage of
the group, once a second the children). A third of the time another thread holds the GIL in one long C loop. Reach: the
recorder under 0.2 % of a core; no gap over 1.1 periods while the GIL is held. A machine with more to do than it has
cores wakes any thread late now and then, whoever holds the GIL, so what fails is a tenth of the gaps over 1.1 periods,
or one over two; the longest is printed. Exit status 1 when out of reach.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ftforensics.model.ring import Ring
from ftforensics.wire.ring import read_ring

ROOT = Path(__file__).resolve().parent.parent
PERIOD = 0.1
COST_LIMIT = 0.2  # percent of a core

HEAD = """
import json, os, re, signal, sys, threading, time
kind, seconds, workers = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
children = []
for _ in range(workers):
    pid = os.fork()
    if pid == 0:
        block = bytearray(b"x") * (4 << 20)
        signal.pause()
        os._exit(0)
    children.append(pid)
samples = []
"""

RECORDER = """
import ftforensics
ftforensics.install(helper="none")
from ftforensics import _native
"""

PSUTIL = """
import psutil
me = psutil.Process()
tick = [0]
usage = sys.argv[4]
sampler = []
def sample():
    sampler.append(threading.get_native_id())
    while True:
        me.memory_info()
        psutil.virtual_memory()
        open(usage).read() if usage else None
        if tick[0] % 10 == 0:
            for child in me.children():
                try:
                    child.memory_info()
                except psutil.Error:
                    pass
        tick[0] += 1
        samples.append(time.monotonic())
        time.sleep(0.1)
threading.Thread(target=sample, daemon=True).start()
"""

BODY = """
time.sleep(1)
tids = sampler if kind == "psutil" else [
    int(tid) for tid in os.listdir("/proc/self/task")
    if open(f"/proc/self/task/{tid}/comm").read() == "ftforensics\\n"
]
def cpu():
    # nanoseconds on the CPU (man 5 proc, schedstat); stat counts ticks of ten milliseconds
    return int(open(f"/proc/self/task/{tids[0]}/schedstat").read().split()[0])
before, began, held = cpu(), time.monotonic(), []
count = len(samples)
while time.monotonic() - began < seconds:
    time.sleep(2 * seconds / 15)
    start = time.monotonic()
    while time.monotonic() - start < seconds / 15:
        re.match(r"(a+)+$", "a" * 22 + "b")
    held.append((start, time.monotonic()))
spent, lasted = cpu() - before, time.monotonic() - began
ring = os.fsdecode(_native.ring_path()) if kind == "recorder" else None
print(json.dumps({"spent": spent / 1e9, "lasted": lasted, "began": began, "held": held, "samples": samples,
                  "ring": ring}), flush=True)
sys.stdin.readline()
for pid in children:
    os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
os._exit(0)
"""


@dataclass(frozen=True)
class Cost:
    """percent: of a core; sample_us: CPU time of one sample, everything included; gaps: while the GIL was held; free:
    while it was not."""

    percent: float
    sample_us: float
    gaps: list[float]
    free: list[float]


def usage_file() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.usage_in_bytes"
        if number == "0" and not controllers and Path(f"/sys/fs/cgroup{path}/memory.current").exists():
            return f"/sys/fs/cgroup{path}/memory.current"
    return ""


def measure(kind: str, seconds: float, workers: int) -> Cost:
    program = HEAD + (RECORDER if kind == "recorder" else PSUTIL) + BODY
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "FTFORENSICS_DIR": folder}
        process = subprocess.Popen(
            [sys.executable, "-c", program, kind, str(seconds), str(workers), usage_file()],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        if kind == "recorder":
            ring = read_ring(Path(told["ring"]).read_bytes())
            assert isinstance(ring, Ring)
            times = [sample.at for sample in ring.fast]
        else:
            times = told["samples"]
        process.communicate("\n")
    taken = sum(told["began"] <= at for at in times)
    gaps, free = [], []
    for early, late in pairwise(at for at in times if at >= told["began"]):
        held = any(late > start and early < end for start, end in told["held"])
        (gaps if held else free).append(late - early)
    return Cost(100 * told["spent"] / told["lasted"], 1e6 * told["spent"] / max(1, taken), sorted(gaps), sorted(free))


def describe(name: str, cost: Cost) -> str:
    marks = [cost.gaps[min(len(cost.gaps) - 1, int(len(cost.gaps) * part))] for part in (0.5, 0.9, 0.99, 1)]
    words = " ".join(f"{mark * 1000:7.1f}" for mark in marks)
    return f"  {name:10} {cost.percent:8.3f} % {cost.sample_us:9.1f}    {words}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args()
    print(f"A rank with {options.workers} children, 10 samples a second, load {os.getloadavg()[0]:.1f}")
    print("             of a core   us/sample    gaps while the GIL is held, ms: median, 90%, 99%, max")
    ours = measure("recorder", options.seconds, options.workers)
    print(describe("recorder", ours), flush=True)
    theirs = measure("psutil", options.seconds, options.workers)
    print(describe("psutil", theirs))
    cheaper, steadier = theirs.percent / ours.percent, theirs.gaps[-1] / ours.gaps[-1]
    print(f"  psutil / recorder: CPU {cheaper:.1f}, longest gap {steadier:.1f}")
    usual = ours.gaps[int(len(ours.gaps) * 0.9)]
    good = ours.percent < COST_LIMIT and usual <= 1.1 * PERIOD and ours.gaps[-1] <= 2 * PERIOD
    print(f"  longest gap of the recorder while nobody held the GIL: {ours.free[-1] * 1000:.1f} ms")
    print(f"  to reach: under {COST_LIMIT} % of a core, gaps up to {1100 * PERIOD:.0f} ms: {'yes' if good else 'NO'}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())

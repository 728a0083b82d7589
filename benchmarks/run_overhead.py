"""What `ftforensics run` costs a job: its start, its output, its idle time.

    python benchmarks/run_overhead.py [--runs 15] [--seconds 10] [--json]

Beside each figure stands the same without us, taken in the same go and interleaved, and the machine's load. The figure
(design): under 1 % of one core while the job works. It is taken from the kernel's accounts of all our processes
(supervisor, witness, copier, log) over some seconds with eight workers below.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = [sys.executable, "-m", "ftforensics", "run"]
GIGABYTE = ["sh", "-c", "head -c 1000000000 /dev/zero"]
WORKERS = "for i in 1 2 3 4 5 6 7 8; do sleep 30 & done; echo ready; wait"
REACH = 1.0  # percent of one core


def environment(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONPYCACHEPREFIX": f"{folder}/pyc",  # compiled, as an installed package is
        "FTFORENSICS_DIR": f"{folder}/run",
    }


def wall(command: list[str], folder: str) -> tuple[float, float]:
    """(wall, processor) seconds of a command and what it waited for."""
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execvpe(command[0], command, environment(folder))
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{command} ended with status {status}")
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime


def start_up(runs: int, folder: str) -> dict[str, float]:
    bare, under, cpu = [], [], []
    wall([*RUN, "--", "true"], folder)  # compiles
    for _ in range(runs):
        bare.append(wall(["true"], folder)[0])
        seconds, used = wall([*RUN, "--", "true"], folder)
        under.append(seconds)
        cpu.append(used)
    return {
        "true_ms": statistics.median(bare) * 1000,
        "run_true_ms": statistics.median(under) * 1000,
        "run_true_cpu_ms": statistics.median(cpu) * 1000,
    }


def throughput(folder: str, turns: int = 3) -> dict[str, float]:
    """MB/s through a pipe into a reader, the median of some turns."""
    ways = {
        "bare": GIGABYTE,
        "cat": ["sh", "-c", "head -c 1000000000 /dev/zero | cat"],
        "run": [*RUN, "--", *GIGABYTE],
        "run_without_log": [*RUN, "--no-log", "--", *GIGABYTE],
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(turns):
        for way, command in ways.items():
            begun = time.monotonic()
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(folder)) as process:
                assert process.stdout is not None
                size = 0
                while data := process.stdout.read(1 << 20):
                    size += len(data)
            if size != 1_000_000_000 or process.returncode != 0:
                raise SystemExit(f"{way}: {size} bytes, status {process.returncode}")
            taken[way].append(1000 / (time.monotonic() - begun))
    return {f"{way}_mb_s": statistics.median(rates) for way, rates in taken.items()}


def idle(seconds: float, folder: str) -> dict[str, float]:
    process = subprocess.Popen(
        [*RUN, "--quiet", "--", "bash", "-c", WORKERS], stdout=subprocess.PIPE, env=environment(folder)
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1)  # the first looks
    ours = [process.pid, *helpers(process.pid)]
    before, begun = [used(pid) for pid in ours], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begun
    spent = sum(now - then for now, then in zip([used(pid) for pid in ours], before, strict=True))
    memory = sum(private(pid) for pid in ours)
    process.terminate()
    process.wait()
    process.stdout.close()
    return {"idle_percent": 100 * spent / passed, "processes": len(ours), "private_mb": memory / 1e6}


def helpers(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().startswith("ftf-")]


def used(pid: int) -> float:
    """Processor seconds. From schedstat, in nanoseconds: the ticks of /proc/PID/stat are too coarse."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = {
            **start_up(options.runs, folder),
            **throughput(folder),
            **idle(options.seconds, folder),
            "load": os.getloadavg()[0],
        }
    if options.json:
        print(json.dumps(figures))
        return 0
    print(f"load {figures['load']:.1f}, {options.runs} starts, {options.seconds:g} s idle")
    print(f"  true                          {figures['true_ms']:8.1f} ms")
    print(f"  ftforensics run -- true       {figures['run_true_ms']:8.1f} ms, {figures['run_true_cpu_ms']:.1f} ms CPU")
    print(f"  1 GB into a pipe              {figures['bare_mb_s']:8.0f} MB/s")
    print(f"  ... through cat               {figures['cat_mb_s']:8.0f} MB/s")
    print(f"  ... under run                 {figures['run_mb_s']:8.0f} MB/s")
    print(f"  ... under run --no-log        {figures['run_without_log_mb_s']:8.0f} MB/s")
    print(
        f"  idle, 8 workers               {figures['idle_percent']:8.2f} % of one core in {figures['processes']:.0f} "
        f"processes, {figures['private_mb']:.0f} MB of their own; to reach {REACH:g} %: "
        f"{'yes' if figures['idle_percent'] < REACH else 'NO'}"
    )
    return 0 if figures["idle_percent"] < REACH else 1


if __name__ == "__main__":
    raise SystemExit(main())

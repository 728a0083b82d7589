"""How long `ftforensics check` takes, beside `python -m torch.utils.collect_env`, which asks similar questions.

    python benchmarks/check.py [--runs 10] [--json]

The figure: under 1 s without a GPU. Wall and processor time of both, interleaved, with what they start; the first run
of each, which compiles and fills caches, is not counted. The peer imports torch; where there is none, its column stays
empty.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECK = [sys.executable, "-m", "ftforensics", "check", "--json"]
PEER = [sys.executable, "-m", "torch.utils.collect_env"]
REACH = 1.0  # seconds


def taken(command: list[str], folder: str) -> tuple[float, float]:
    """(wall, processor) seconds of a command and what it waited for."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": folder}
    before, begun = os.times(), time.monotonic()
    ended = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall, after = time.monotonic() - begun, os.times()
    if ended.returncode not in (0, 1):
        raise SystemExit(f"{command} ended with status {ended.returncode}: {ended.stderr.decode(errors='replace')}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    commands = {"check": CHECK}
    if importlib.util.find_spec("torch"):
        commands["collect_env"] = PEER
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.runs + 1):
            for name, command in commands.items():
                measured = taken(command, folder)
                if turn:
                    times[name].append(measured)
    figures = {"load": os.getloadavg()[0], "runs": options.runs}
    for name, measured_times in times.items():
        figures[f"{name}_s"] = statistics.median(wall for wall, _ in measured_times)
        figures[f"{name}_worst_s"] = max(wall for wall, _ in measured_times)
        figures[f"{name}_cpu_s"] = statistics.median(used for _, used in measured_times)
    if options.json:
        print(json.dumps(figures))
    else:
        print(f"load {figures['load']:.1f}, {options.runs} runs each")
        for name in commands:
            print(
                f"{name:<12} {figures[f'{name}_s']:.2f} s (worst {figures[f'{name}_worst_s']:.2f}), "
                f"processor {figures[f'{name}_cpu_s']:.2f} s"
            )
        print(f"reach: check under {REACH:g} s of processor time")
    return 0 if figures["check_cpu_s"] < REACH else 1


if __name__ == "__main__":
    sys.exit(main())

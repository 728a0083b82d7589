"""What `import ftforensics; ftforensics.install()` costs a job, against faulthandler in the same go.

    python benchmarks/install.py [--python /path/to/python3.12] [--runs 41] [--json]

The figure (design): at most 3 x `import faulthandler; faulthandler.enable()` plus 10 ms. Both are measured as CPU time
of a whole process minus the same process doing nothing, interleaved, so that a busy machine disturbs all alike.
Neighbours only ever add to CPU time (they take caches and the other half of a core), so of the runs of a program the
least counts; the medians are printed beside it. Byte code is compiled into a directory of its own first, as an
installed package's is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {
    "nothing": "pass",
    "faulthandler": "import faulthandler; faulthandler.enable()",
    "import": "import ftforensics",
    "install": "import ftforensics; ftforensics.install(helper='none')",
    "install_auto": "import ftforensics; ftforensics.install()",
}
SHOWN = {
    "faulthandler": "faulthandler.enable()",
    "import": "import ftforensics",
    "install": "... and install(helper='none')",
    "install_auto": "... and install()",
}


def cpu_ms(python: str, program: str, environ: dict[str, str], cwd: str) -> float:
    """CPU time of one process and what it waited for, in milliseconds."""
    pid = os.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(python, [python, "-c", program], environ)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{python} -c {program!r} ended with status {status}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def measure(python: str, runs: int) -> dict[str, float]:
    """CPU milliseconds of each program over an empty one: the least, and the median of the turns."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONPYCACHEPREFIX": f"{folder}/pyc",
            "HOME": folder,
        }
        taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
        for turn in range(runs + 2):
            for name, program in PROGRAMS.items():
                cost = cpu_ms(python, program, environ, folder)
                if turn >= 2:  # the first two fill the caches
                    taken[name].append(cost)
    # A difference can come out below zero: faulthandler costs next to nothing.
    figures = {"nothing_ms": min(taken["nothing"])}
    for name in SHOWN:
        figures[f"{name}_ms"] = max(0.0, min(taken[name]) - min(taken["nothing"]))
        differences = (a - b for a, b in zip(taken[name], taken["nothing"], strict=True))
        figures[f"{name}_median_ms"] = statistics.median(differences)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=41)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.python, options.runs)
    if options.json:
        print(json.dumps(figures))
        return 0
    version = subprocess.run([options.python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    limit = 3 * figures["faulthandler_ms"] + 10
    print(f"{version}, {options.runs} runs each, load {os.getloadavg()[0]:.1f}, CPU over an empty process")
    print(f"  empty process                  {figures['nothing_ms']:6.1f} ms (not counted)")
    for name, words in SHOWN.items():
        print(f"  {words:30} {figures[f'{name}_ms']:6.1f} ms (median {figures[f'{name}_median_ms']:.1f})")
    print(f"  to reach                       {limit:6.1f} ms: {'yes' if figures['install_ms'] <= limit else 'NO'}")
    return 0 if figures["install_ms"] <= limit else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Run a script that dies, then ask ftforensics why:  python examples/demo.py examples/train.py

Exits 0 when the script died by a signal and `ftforensics analyze` reached a verdict.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

RUNS = Path("ftforensics")


def main(script: str) -> int:
    folder = RUNS / f"demo-{Path(script).stem}"
    shutil.rmtree(folder, ignore_errors=True)

    print(f"$ FTFORENSICS_DIR={folder} python {script}", flush=True)
    ended = subprocess.run([sys.executable, script], env={**os.environ, "FTFORENSICS_DIR": str(folder)}).returncode
    if ended >= 0:
        print(f"demo: {script} was meant to die by a signal and exited with status {ended}", file=sys.stderr)
        return 1
    print(f"[{signal.Signals(-ended).name}: the kernel ended the process; Python raised nothing]\n", flush=True)

    print(f"$ ftforensics analyze {folder}", flush=True)
    return subprocess.run([sys.executable, "-m", "ftforensics", "analyze", str(folder)]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

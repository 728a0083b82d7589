"""Two jobs at the same time under `run`, with one fixed folder: each is told its own end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# Both are alive until both are there; then the first is killed by the second's parent, the test.
JOB = "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline(); sys.exit(int(sys.argv[1]))"


def started(folder: Path, code: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "ftforensics",
        "run",
        "--dir",
        str(folder),
        "--",
        sys.executable,
        "-c",
        JOB,
        str(code),
    ]
    pipe = subprocess.PIPE
    environ = {**os.environ, "XDG_STATE_HOME": str(folder.parent)}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environ)


def test_each_is_told_its_own_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first, second = started(folder, 0), started(folder, 3)
    assert first.stdout is not None and second.stdout is not None and second.stdin is not None
    killed, ended = int(first.stdout.readline()), int(second.stdout.readline())
    os.kill(killed, 9)
    _, said = first.communicate(timeout=60)
    assert first.returncode == -9 and f"pid {killed}" in said
    _, said = second.communicate("\n", timeout=60)
    assert second.returncode == 3
    assert f"pid {ended}" in said and f"pid {killed}" not in said and "status 3" in said
    reports = [json.loads(path.read_text()) for path in folder.glob("*report.json")]
    assert {report["processes"][0]["pid"] for report in reports} == {killed, ended}

"""A real torchrun: all ranks of one attempt in one folder, the next attempt in its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import needs_torch
from jobs import Jobs

PROGRAM = """
from torch.distributed.elastic.multiprocessing.errors import record
import ftforensics; ftforensics.install(helper="none")
import ctypes, os, time

@record
def main():
    if os.environ["RANK"] == "1":
        ctypes.string_at(0)
    time.sleep(60)  # until torchrun ends it

main()
"""


@needs_torch
@pytest.mark.torch
def test_attempts_of_a_launch(jobs: Jobs) -> None:
    cwd = jobs.fresh()
    (cwd / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    command += ["--rdzv-id", "mine", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "train.py"]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=jobs.environment({}),
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1, done.stderr
    assert "exitcode  : -11" in done.stderr
    folders = sorted(path.name for path in (cwd / "ftforensics").iterdir())
    assert len(folders) == 2
    assert re.fullmatch(r"mine-\d+-\d+", folders[0]) and folders[1] == folders[0] + "-attempt1"
    for name in folders:
        paths = sorted(Path(cwd, "ftforensics", name).iterdir(), key=lambda path: path.name)
        # rank 0 was ended by torchrun: its ring tells by whom, if it had come as far as install()
        names = [re.sub(r"-\d+-\d+", "", path.name.partition("-")[2]) for path in paths]
        assert [name for name in names if name != "rank0.ring"] == ["rank1.crash.json", "rank1.ring"]
        record = json.loads(paths[-2].read_text())
        assert (record["job"]["rank"], record["job"]["world_size"]) == (1, 2)
        # @record has called faulthandler.enable() after us: its text is where it would have been
        assert record["signal"]["name"] == "SIGSEGV" and "in main" in record["python"]["text"]
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 2

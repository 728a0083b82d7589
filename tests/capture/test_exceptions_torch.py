"""Uncaught exceptions in ranks of a real torchrun, with and without `@record`, and in children of torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import Interpreter, needs_torch
from exception_records import exceptions, only_exception
from jobs import Jobs, Run

pytestmark = [needs_torch, pytest.mark.torch]
OURS = Interpreter(sys.version_info[:2], sys.executable)

PLAIN = """
import ftforensics, os, sys, time
ftforensics.install(helper="none")
def train():
    ftforensics.step(5)
    if os.environ["RANK"] == "1":
        raise RuntimeError("loss is NaN, token=hf_abcDEF0123456789abcDEF01")
    time.sleep(60)  # until torchrun ends it
"""
RECORDED = (
    PLAIN + "from torch.distributed.elastic.multiprocessing.errors import record\n"
    "if __name__ == '__main__':\n    record(train)()\n"
)


def torchrun(jobs: Jobs, program: str, **more: str) -> Run:
    cwd = jobs.fresh()
    (cwd / "train.py").write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--log-dir", "logs"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "train.py"]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=jobs.environment(more),
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
    )
    return Run(done.returncode, done.stdout, done.stderr, cwd, [], [])


def summary(done: Run) -> str:
    return done.err[done.err.index("Root Cause (first observed failure)") :]


def error_file(done: Run) -> dict[str, dict[str, dict[str, str]]]:
    (path,) = done.folder.rglob("error.json")
    found: dict[str, dict[str, dict[str, str]]] = json.loads(path.read_text())
    return found


def test_a_script_without_record_is_told_of_in_torchruns_summary(jobs: Jobs) -> None:
    done = torchrun(jobs, PLAIN + "train()\n")
    record = only_exception(done.folder)
    assert record.hook == "sys.excepthook" and record.step == 5
    assert record.job is not None and record.job.rank == 1
    said = error_file(done)["message"]
    (folder,) = (done.folder / "ftforensics").iterdir()
    line = "ftforensics: rank 1 raised RuntimeError: loss is NaN, token=[redacted] (train.py:7)"
    line += f"; ftforensics analyze {folder}"
    assert said["message"] == line
    assert said["extraInfo"]["py_callstack"].startswith(line + "\nTraceback (most recent call last):\n")
    assert "    raise RuntimeError(" in said["extraInfo"]["py_callstack"]
    assert said["extraInfo"]["timestamp"].isdigit()
    assert line in summary(done) and "rank      : 1" in summary(done)
    assert "hf_abcDEF" not in summary(done)


def test_switched_off_the_summary_is_torchruns_own(jobs: Jobs) -> None:
    done = torchrun(jobs, PLAIN + "train()\n", FTFORENSICS_TORCHRUN_SUMMARY="0")
    assert only_exception(done.folder).exceptions[0].type == "RuntimeError"
    assert not list(done.folder.rglob("error.json")) and "error_file: <N/A>" in summary(done)


def test_with_record_torchs_own_file_stays(jobs: Jobs) -> None:
    done = torchrun(jobs, RECORDED)
    record = only_exception(done.folder)
    assert record.hook == "torchrun record"
    assert record.exceptions[0].frames[-1].function == "train"
    assert error_file(done)["message"]["message"].startswith("RuntimeError: loss is NaN")


def test_a_child_of_a_rank_does_not_speak_for_it(jobs: Jobs) -> None:
    """It inherits the variable; the rank catches its failure and goes on."""
    child = "import ftforensics; ftforensics.install(helper='none'); raise ValueError('of a child')"
    done = torchrun(
        jobs,
        "import subprocess, sys, os\n"
        f"status = subprocess.run([sys.executable, '-c', {child!r}]).returncode\n"
        "sys.exit(3 if os.environ['RANK'] == '0' else 0)\n",
    )
    assert {one.exceptions[0].message for one in exceptions(done.folder)} == {"of a child"}
    assert not list(done.folder.rglob("error.json"))


def test_a_rank_that_only_lost_its_peer_leaves_the_summary_alone(jobs: Jobs) -> None:
    """torchrun calls the rank with the oldest file the first failure, and a rank that was killed has none."""
    done = torchrun(
        jobs,
        "import os, signal, time\nimport ftforensics; ftforensics.install(helper='none')\n"
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1))\n"
        "if os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.all_reduce(torch.ones(1))\n",
    )
    assert not list(done.folder.rglob("error.json"))
    found = exceptions(done.folder)  # torchrun may have ended rank 0 before it noticed
    assert all(record.peer_lost for record in found), found
    assert re.search(r"exitcode  : -9", done.err)


SPAWN = """
import ftforensics
if __name__ == "__main__":
    ftforensics.install(helper="none")
import torch.multiprocessing as mp
def work(index):
    if index == 1:
        raise ValueError("item 1")
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""


def test_a_child_of_mp_spawn(jobs: Jobs) -> None:
    done = jobs.run(OURS, SPAWN, install="0")
    assert done.status == 1, done.err
    found = {record.hook: record for record in exceptions(done.folder)}
    assert set(found) == {"multiprocessing", "sys.excepthook"}
    child, parent = found["multiprocessing"], found["sys.excepthook"]
    assert (child.exceptions[0].type, child.exceptions[0].message) == ("ValueError", "item 1")
    assert child.worker_of == (parent.process.pid if parent.process else None) and child.peer_lost is False
    assert parent.exceptions[0].type.endswith("ProcessRaisedException") and parent.peer_lost is True


def test_a_dataloaders_worker_hands_its_exception_to_the_rank(jobs: Jobs) -> None:
    code = """
        from torch.utils.data import DataLoader
        class Data:
            def __len__(self):
                return 4
            def __getitem__(self, index):
                raise KeyError("shard")
        for batch in DataLoader(Data(), num_workers=2):
            pass
        """
    done = jobs.run(OURS, code)
    record = only_exception(done.folder)
    assert record.hook == "sys.excepthook" and record.worker_of is None
    assert record.exceptions[0].type == "KeyError" and "worker process 0" in record.exceptions[0].message
    assert [path.suffixes for path in sorted(done.folder.rglob("*")) if path.suffix == ".ring"] == [[".ring"]], (
        "a worker's ring is left: it was ended by its rank"
    )


def test_a_dataloader_of_a_run_that_ends_well_leaves_nothing(jobs: Jobs) -> None:
    code = """
        from torch.utils.data import DataLoader
        loader = iter(DataLoader(range(100), num_workers=2, persistent_workers=True))
        next(loader)
        """
    done = jobs.run(OURS, code)
    assert done.status == 0 and [path.name for path in Path(done.folder).iterdir()] == ["program.py"]

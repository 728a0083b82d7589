"""Real torch jobs that end well leave no ring; what dies in them leaves its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from conditions import Interpreter, needs_torch
from jobs import Jobs
from rings import read, ring_paths, start

pytestmark = [needs_torch, pytest.mark.torch]
HERE = Interpreter(sys.version_info[:2], sys.executable)

EPOCHS = """
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return torch.tensor(i)
if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=PERSISTENT,
                        multiprocessing_context=METHOD)
    import time
    for epoch in range(3):
        with ftforensics.phase(f"epoch {epoch}"):
            print(sorted(int(x) for batch in loader for x in batch) == list(range(12)))
            time.sleep(0.2)  # long enough for the workers' rings
"""
IN_MAIN = 'if __name__ == "__main__": ftforensics.install(helper="none")'


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("persistent", [False, True])
def test_loaders_that_end_well_leave_nothing(persistent: bool, method: str, jobs: Jobs) -> None:
    code = EPOCHS.replace("PERSISTENT", str(persistent)).replace("METHOD", repr(method))
    done = jobs.run(HERE, code, install=IN_MAIN)
    assert (done.status, done.out) == (0, "True\n" * 3), done.err
    assert [path.name for path in done.folder.iterdir()] == ["program.py"]


def test_a_launch_that_ends_well_leaves_nothing(jobs: Jobs) -> None:
    cwd = jobs.fresh()
    (cwd / "train.py").write_text(
        "import ftforensics, time, torch.distributed as dist\n"
        "ftforensics.install(helper='none')\n"
        "dist.init_process_group('gloo'); dist.barrier(); time.sleep(0.3); dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(command, cwd=cwd, env=jobs.environment({}), capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in cwd.iterdir()] == ["train.py"]


def test_a_killed_loader_worker_names_its_rank(jobs: Jobs) -> None:
    code = """
        import os, torch
        from torch.utils.data import DataLoader, Dataset
        class Slow(Dataset):
            def __len__(self): return 1000
            def __getitem__(self, i):
                import time; time.sleep(0.05); return torch.tensor(i)
        it = iter(DataLoader(Slow(), num_workers=2, batch_size=1))
        next(it)
        tell(" ".join(str(w.pid) for w in it._workers))
        try:
            for _ in it: pass
        except (RuntimeError, OSError, EOFError) as error:  # of the latter two where the worker died as it handed on
            tell(f"{type(error).__name__}: {error}".strip())
        """
    job = start(jobs, HERE, code, RANK="5")
    victim, other = (int(word) for word in job.line().split())
    ends = time.monotonic() + 20
    while len(ring_paths(job.folder)) < 3 and time.monotonic() < ends:
        time.sleep(0.02)
    os.kill(victim, signal.SIGKILL)
    job.go_on()
    assert job.line()  # what torch says, and whether it names the worker, depends on who notices first
    job.go_on()
    status, _ = job.end()
    assert status == 0
    (path,) = ring_paths(job.folder)
    ring = read(path)
    assert (ring.process.pid, ring.process.worker_of, ring.process.rank) == (victim, job.process.pid, 5)
    assert other != victim and ring.end.how is None

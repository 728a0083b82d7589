"""Let a script die for want of memory, and ask ftforensics why:  python examples/demo_kill.py examples/train_save.py

As root the script runs in a control group of its own with a limit of 256 MiB, and the kernel kills it there. Without
the right to make one it is killed with `kill -9` in its save, and who did it stays unknown: SIGKILL says nothing, and
only root may trace it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT = 256 << 20
# memory.max is version 2, the other file version 1 (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).
PLACES = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max"))


@contextlib.contextmanager
def limited_group() -> Iterator[Path | None]:
    group = None
    for mount, limit in PLACES:
        try:
            group = mount / f"ftforensics-demo-{os.getpid()}"
            group.mkdir()
            (group / limit).write_text(str(LIMIT))
            break
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            group = None
    try:
        yield group
    finally:
        if group is not None:
            with contextlib.suppress(OSError):
                group.rmdir()


def main(script: str) -> int:
    folder = Path("ftforensics") / f"demo-{Path(script).stem}"
    shutil.rmtree(folder, ignore_errors=True)
    with limited_group() as group:

        def enter() -> None:
            if group is not None:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        where = f" with {LIMIT >> 20} MiB" if group is not None else ""
        print(f"$ ftforensics run --dir {folder} -- python {script}    # in a control group{where}", flush=True)
        command = [sys.executable, "-m", "ftforensics", "run", "--dir", str(folder), "--quiet", "--"]
        job = subprocess.Popen([*command, sys.executable, script], preexec_fn=enter, stdout=subprocess.PIPE, text=True)
        assert job.stdout is not None
        for line in job.stdout:
            print(line, end="", flush=True)
            if group is None and line.startswith("step 9 "):
                time.sleep(0.5)
                kill(folder)
        status = job.wait()
    if status != -signal.SIGKILL:
        print(f"demo: {script} was meant to be killed and ended with {status}", file=sys.stderr)
        return 1
    print("[Killed]\n", flush=True)
    print(f"$ ftforensics analyze {folder}", flush=True)
    made = subprocess.run([sys.executable, "-m", "ftforensics", "analyze", str(folder)])
    # Undecided is the right answer where nobody could see who it was.
    return 0 if made.returncode == (0 if group is not None else 3) else 1


def kill(folder: Path) -> None:
    """The process that wrote the ring: its file is called HOST-PID-START.ring."""
    for ring in folder.glob("*.ring"):
        os.kill(int(ring.name.rsplit("-", 2)[1]), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

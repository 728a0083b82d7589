"""Boots a second, real kernel in a few seconds: User-mode Linux, an ordinary process with the host's files as its root.

It has what the machine may lack: version 2 control groups (mounted at /sys/fs/cgroup), a whole machine that may run out
of memory, another kernel's wording. Inside, /proc, /sys, /run, /dev/shm and /var/log are its own; everything else is
the host's.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conditions import ROOT

_ROOM = 2 << 30
_VECTOR_STATE = ROOT / "tests" / "ground" / "vector_state.c"
_INIT = """#!/bin/sh
export PATH={path}
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; mount -t tmpfs log /var/log
hostname second; ip link set lo up 2>/dev/null
cd /
({script}) >{folder}/output 2>&1
echo $? >{folder}/status
poweroff -f
"""


def boot(script: str, folder: Path, memory: str = "700M", timeout: float = 110) -> str:
    """Runs a shell script as root of the second kernel. folder: an empty one for its files. Gives what the script
    printed; fails with the console's text when it did not end with 0."""
    init = folder / "init"
    init.write_text(_INIT.format(path=os.environ["PATH"], script=script, folder=folder))
    init.chmod(0o755)
    vector_state = folder / "vector_state.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(vector_state), str(_VECTOR_STATE)], check=True)
    arguments = ["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", f"mem={memory}", f"init={init}"]
    arguments += ["con=null", "con0=fd:0,fd:1", "quiet", "log_buf_len=1M"]
    ran = subprocess.run(
        ["linux.uml", *arguments],
        env={**os.environ, **_memory_in(folder), "LD_PRELOAD": str(vector_state)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
    )
    output = (folder / "output").read_text(errors="replace") if (folder / "output").exists() else ""
    status = (folder / "status").read_text().strip() if (folder / "status").exists() else "none: it did not start"
    assert status == "0", f"status {status}\n{output}\n{ran.stdout.decode(errors='replace')}"
    return output


def _memory_in(folder: Path) -> dict[str, str]:
    """The kernel's memory is a file, in /dev/shm unless told otherwise. Containers have 64 MB there, and what does not
    fit kills the kernel (SIGBUS)."""
    room = os.statvfs("/dev/shm")
    return {} if room.f_bavail * room.f_frsize > _ROOM else {"TMPDIR": str(folder)}

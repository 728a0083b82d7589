"""Boots a second, real kernel in a few seconds: User-mode Linux, an ordinary process with the host's files as its root.

It has what the machine may lack: version 2 control groups, a whole machine that may run out of memory, another kernel's
wording. Inside, /proc, /sys, /run and /dev/shm are its own; everything else is the host's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Linux 6.1 for User-mode Linux reads its processes' vector registers into a buffer of 2.7 KB and writes back what it
# got. A host processor with more state (AMX: 11 KB) refuses the short write, and the kernel inside panics ("ptrace set
# fp regs failed, errno = 14"). Refused the reading at its start, it uses the old request, which knows SSE only; so
# programs inside must not use what that request loses (seen on a Xeon with AMX and Linux 6.18: Python dies at random
# places without the setting).
_LAUNCHER = """
import ctypes, os, struct, sys
def instruction(code, true, false, value):
    return struct.pack("HBBI", code, true, false, value)
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
program = b"".join([
    instruction(LOAD, 0, 0, 0), instruction(EQUAL, 0, 5, 101),  # x86-64: ptrace
    instruction(LOAD, 0, 0, 16), instruction(EQUAL, 0, 3, 0x4204),  # PTRACE_GETREGSET
    instruction(LOAD, 0, 0, 32), instruction(EQUAL, 0, 1, 0x202),  # NT_X86_XSTATE
    instruction(RETURN, 0, 0, 0x00050000 | 22),  # EINVAL
    instruction(RETURN, 0, 0, 0x7FFF0000),
])
held = ctypes.create_string_buffer(program, len(program))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(Filter(len(program) // 8, ctypes.addressof(held))), 0, 0) == 0  # PR_SET_SECCOMP
os.execvp(sys.argv[1], sys.argv[1:])
"""
_WITHOUT = (
    "AVX512F AVX512VL AVX512BW AVX512DQ AVX512CD AVX2 AVX AVX_Fast_Unaligned_Load BMI2 ERMS FSRM XSAVE XSAVEC RTM"
)
_INIT = """#!/bin/sh
export PATH={path}
export GLIBC_TUNABLES=glibc.cpu.hwcaps={tunables}
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm
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
    init.write_text(
        _INIT.format(
            path=os.environ["PATH"],
            tunables=",".join(f"-{name}" for name in _WITHOUT.split()),
            script=script,
            folder=folder,
        )
    )
    init.chmod(0o755)
    arguments = ["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", f"mem={memory}", f"init={init}"]
    arguments += ["con=null", "con0=fd:0,fd:1", "quiet"]
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, "linux.uml", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
    )
    output = (folder / "output").read_text(errors="replace") if (folder / "output").exists() else ""
    status = (folder / "status").read_text().strip() if (folder / "status").exists() else "none: it did not start"
    assert status == "0", f"status {status}\n{output}\n{ran.stdout.decode(errors='replace')}"
    return output

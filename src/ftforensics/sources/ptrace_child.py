"""Traces a child of its own for a moment, to see whether that is allowed: a program of the standard library, not for
import.

    python -I -S ptrace_child.py

Prints {"allowed": true} or {"allowed": false, "why": "..."}. PTRACE_SEIZE (linux/ptrace.h) does not stop the child.
A seccomp filter, Yama's scope 3 and a missing capability all show as they would to the tools that read stacks.
"""

import ctypes
import json
import os
import signal

PTRACE_SEIZE = 0x4206


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        failed = libc.ptrace(PTRACE_SEIZE, child, None, None) != 0
        said = {"allowed": not failed, "why": os.strerror(ctypes.get_errno()) if failed else None}
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()

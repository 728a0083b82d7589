"""A mount whose server went away, made of FUSE without a server: while the device is open nobody answers, and every
look at the mount waits for ever. Once it is closed the kernel answers ENOTCONN, as for a crashed server.

The mount is in a namespace of its own and goes with it. Needs conditions.needs_fuse.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

_MOUNTED = """
import ctypes, os, subprocess, sys
state, place, *command = sys.argv[1:]
device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
assert libc.mount(b"nobody", place.encode(), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())
if state == "stale":
    os.close(device)
child = subprocess.Popen(command)
try:
    status = child.wait(50)
except subprocess.TimeoutExpired:
    child.kill()
    sys.exit("it hangs")
libc.umount2(place.encode(), 2)  # MNT_DETACH
sys.exit(status if status >= 0 else 128 - status)
"""


def beside(state: str, place: Path, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` where `place` is such a mount. state: "hung" or "stale". Its exit status is
    the command's, 128 + N for signal N, and 1, said on standard error, when it has not ended within 50 s."""
    return ["unshare", "-m", sys.executable, "-c", _MOUNTED, state, str(place), *command]

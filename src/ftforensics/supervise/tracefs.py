"""tracefs where it is not mounted: a mount of our own that nobody else sees, gone when its descriptor is closed.

fsopen(2) and fsmount(2) (Linux 5.2) make a mount that is attached nowhere. The instances in it are the machine's, as
in any mount of tracefs; only the way to them is private. To attach one would change the machine for everybody on it.
"""

from __future__ import annotations

import ctypes
import os

# The same numbers on x86-64 and aarch64: asm-generic/unistd.h gave new calls one number everywhere from 424 on.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOEXEC = 1  # FSOPEN_CLOEXEC and FSMOUNT_CLOEXEC, linux/mount.h
_CREATE = 6  # FSCONFIG_CMD_CREATE
_QUIET = 0x2 | 0x4 | 0x8  # MOUNT_ATTR_NOSUID, NODEV, NOEXEC


def private_mount() -> int:
    """A descriptor of a detached mount; its files are below /proc/self/fd/N. Raises OSError: no root (EPERM), no
    tracefs in this kernel (ENODEV), a kernel before 5.2 (ENOSYS)."""
    context = _call(_FSOPEN, b"tracefs", _CLOEXEC)
    try:
        _call(_FSCONFIG, context, _CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _CLOEXEC, _QUIET)
    finally:
        os.close(context)


def _call(number: int, *arguments: bytes | int | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result

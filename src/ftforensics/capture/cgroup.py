"""Which files say how much memory this process's group uses and may use."""

from __future__ import annotations

import os

from ftforensics.capture import procfs

# cgroup v1 writes "no limit" as the largest multiple of the page size below 2^63.
_NO_LIMIT = 1 << 60


def memory_files(lines: list[str], root: str = "/sys/fs/cgroup") -> list[bytes]:
    """(usage file, limit file) of the nearest group with a limit, from the lines of /proc/self/cgroup; [] when there is
    none or it cannot be seen. The limit that bites is often an ancestor's: a Slurm step inside a limited job."""
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found = _nearest(f"{root}/memory", path, "memory.usage_in_bytes", "memory.limit_in_bytes")
        elif number == "0" and not controllers:
            found = _nearest(root, path, "memory.current", "memory.max") or _nearest(
                f"{root}/unified", path, "memory.current", "memory.max"
            )
        else:
            continue
        if found:
            return found
    return []


def _nearest(mount: str, path: str, usage: str, limit: str) -> list[bytes]:
    at = path.rstrip("/")
    if not os.path.isdir(mount + at):
        at = ""  # the path is the host's and we are in a container: the mount shows our own group at its top
    while True:
        text = procfs.read_text(f"{mount}{at}/{limit}", 64)
        limited = text is not None and text.strip().isdigit() and int(text) < _NO_LIMIT
        if limited and os.access(f"{mount}{at}/{usage}", os.R_OK):
            return [os.fsencode(f"{mount}{at}/{usage}"), os.fsencode(f"{mount}{at}/{limit}")]
        if not at:
            return []
        at = at.rpartition("/")[0]

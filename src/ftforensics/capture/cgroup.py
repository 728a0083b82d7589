"""The control groups of this process: the files that tell its memory, where they are mounted, which container."""

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


class Mount:
    """A mounted hierarchy that has the memory controller. root: the group that lies at `directory`."""

    def __init__(self, directory: str, root: str, version: int) -> None:
        self.directory = directory
        self.root = root
        self.version = version


def read_mountinfo() -> str:
    """Text of /proc/self/mountinfo; "" when it cannot be read."""
    return procfs.read_text("/proc/self/mountinfo", 1 << 20) or ""


def memory_mount(lines: list[str], mountinfo: str) -> Mount | None:
    """Where the groups of these lines of /proc/self/cgroup can be seen; None when nowhere. The last mount of several
    counts, because it covers the others. mountinfo: text of /proc/self/mountinfo."""
    first = any("memory" in line.split(":")[1].split(",") for line in lines if line.count(":") >= 2)
    found: Mount | None = None
    for line in mountinfo.splitlines():
        # man 5 proc_pid_mountinfo: the fields behind " - " are type, source and the file system's own options
        left, dash, right = line.partition(" - ")
        mounted, options = left.split(), right.split()
        if not dash or len(mounted) < 5 or len(options) < 3:
            continue
        if first and options[0] == "cgroup" and "memory" in options[2].split(","):
            found = Mount(_unescaped(mounted[4]), _unescaped(mounted[3]), 1)
        elif not first and options[0] == "cgroup2":
            found = Mount(_unescaped(mounted[4]), _unescaped(mounted[3]), 2)
    return found


def _unescaped(path: str) -> str:
    """Blanks and the like are written as \\040 there."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, char)
    return path


def container_id(lines: list[str], mountinfo: str | None = None) -> str | None:
    """The 64 hexadecimal digits that container runtimes name things after: in the group's path, or, where the container
    sees its group as "/", in the source of /etc/hostname's mount (Docker, containerd, CRI-O). None: in no container, or
    one of another kind."""
    for line in lines:
        found = _container_name(line)
        if found:
            return found
    if mountinfo is None:
        mountinfo = read_mountinfo()
    for line in mountinfo.splitlines():
        fields = line.split(" ", 5)
        if len(fields) > 4 and fields[4] in ("/etc/hostname", "/etc/resolv.conf", "/etc/hosts"):
            found = _container_name(fields[3])
            if found:
                return found
    return None


def _container_name(path: str) -> str | None:
    for part in path.split("/")[::-1]:
        # "docker-<id>.scope", "cri-containerd-<id>.scope", "<id>", "libpod-<id>.scope"
        word = part.partition(".")[0].rpartition("-")[2].rpartition(":")[2]
        if len(word) == 64 and not word.strip("0123456789abcdef"):
            return word
    return None

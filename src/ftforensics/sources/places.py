"""Files and folders that a run will need: are they there, readable, not empty, and how much room is left.

A dead network mount answers nothing, for ever: another process asks, with a deadline."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.parsers import proc_files
from ftforensics.parsers.proc_files import Mount

TIMEOUT = 3.0  # seconds
_QUICK = 1.0  # seconds
_ANSWER_LIMIT = 1 << 20
_MOUNTS_LIMIT = 16 << 20  # bytes; a node of a container runtime has thousands of mounts
_MOST_LINKS = 40  # as the kernel (man path_resolution)
# File systems whose data is in this machine or behind its disk driver. Every other one is asked: nfs, cifs, fuse,
# lustre, gpfs, ceph, 9p, autofs, and those not made yet.
_LOCAL = (
    "bcachefs", "btrfs", "devtmpfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs", "msdos", "overlay",
    "proc", "ramfs", "reiserfs", "rootfs", "squashfs", "sysfs", "tmpfs", "vfat", "xfs", "zfs",
)  # fmt: skip
_DISKS_OF_A_NETWORK = ("/dev/nbd", "/dev/rbd", "/dev/drbd")


class Place(msgspec.Struct, frozen=True):
    """path: absolute; kind: "folder", "file", "other", None where it is not there; existing: the nearest folder above
    that is there; free, size: bytes of the file system at `existing`; files, files_free: inodes, 0 where the file
    system does not count them; error: what refused, as the system says it, code: errno; silent: no answer in time."""

    path: str
    kind: str | None = None
    readable: bool = False
    writable: bool = False
    empty: bool | None = None
    existing: str | None = None
    size: int | None = None
    free: int | None = None
    files: int | None = None
    files_free: int | None = None
    error: str | None = None
    code: int | None = None
    silent: bool = False


def look_at(host: Host, paths: Sequence[str], timeout: float = TIMEOUT) -> list[Place]:
    """One Place for each path, in order. timeout: seconds for all of them together."""
    wanted = list(dict.fromkeys(paths))
    if not wanted:
        return []
    if not host.runs_commands:
        return [_copied(host, path) for path in paths]
    program = os.path.join(os.path.dirname(__file__), "places_child.py")
    try:
        done = host.run([sys.executable, "-I", "-S", program, *wanted], timeout, _ANSWER_LIMIT)
    except (Refusal, ValueError) as refusal:  # ValueError: an embedded NUL
        return [Place(path, error=str(refusal)) for path in paths]
    found: dict[str, Place] = {}
    for line in done.stdout.splitlines():
        try:
            place = msgspec.json.decode(line, type=Place)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        path, existing = _from_bytes(place.path), place.existing and _from_bytes(place.existing)
        found[path] = msgspec.structs.replace(place, path=path, existing=existing)
    return [found.get(path) or Place(path, silent=True) for path in paths]


def _from_bytes(text: str) -> str:
    """places_child.py writes each byte of a path as one character."""
    return os.fsdecode(text.encode("latin-1", "replace"))


def answers(host: Host, path: str) -> bool:
    """Whether a look at it comes back: a home whose server went away must not cost a verdict what is there for its
    convenience alone. Only a file system that could fall silent is asked: to ask takes a process of its own."""
    return _stays_here(host, path) or not look_at(host, [path], _QUICK)[0].silent


def _stays_here(host: Host, path: str) -> bool:
    """Whether the way to `path` crosses file systems of this machine alone. No step is looked at before the file system
    that it lies on is known, so that this itself never waits. False where it cannot be told."""
    if not host.live or not os.path.isabs(path):
        return False
    try:
        mounts = proc_files.mounts(host.read_text("/proc/self/mountinfo", _MOUNTS_LIMIT))
    except Refusal:
        return False
    # A mount over another hides it: all that stand above a path count, so that their order need not be known.
    foreign = [f"{mount.point.rstrip('/')}/" for mount in mounts if not _is_local(mount)]
    rest = path.split("/")[::-1]
    place, links = "", 0
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            place = os.path.dirname(place).rstrip("/")
            continue
        place = f"{place}/{part}"
        if any(f"{place}/".startswith(point) for point in foreign):
            return False
        try:
            target = os.readlink(place)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return True  # there is nothing below it
            continue  # EINVAL: no link
        except ValueError:
            return False
        links += 1
        if links > _MOST_LINKS:
            return True  # refused at once
        if target.startswith("/"):
            place = ""
        else:
            place = os.path.dirname(place).rstrip("/")
        rest += target.split("/")[::-1]
    return True


def _is_local(mount: Mount) -> bool:
    return mount.kind in _LOCAL and not mount.source.startswith(_DISKS_OF_A_NETWORK)


def _copied(host: Host, path: str) -> Place:
    """Of a copied root: what its files say; room is that of another file system."""
    try:
        host.stat(path)
    except Refusal as refusal:
        return Place(path, error=refusal.reason, code=refusal.code)
    try:
        names = host.names(path)
    except Refusal:
        try:
            size = host.stat(path).st_size
        except Refusal as refusal:
            return Place(path, error=refusal.reason, code=refusal.code)
        return Place(path, kind="file", readable=True, empty=size == 0, existing=os.path.dirname(path))
    return Place(path, kind="folder", readable=True, writable=True, empty=not names, existing=path)

"""An earlier attempt that nobody saw end: the supervisor was killed with its ranks (a group OOM kill), or the node
died.

Its evidence has no line `ended` and nobody holds its lock; or, without `run`, a recorder's ring is left whose process
is gone: a process that ends takes its ring away."""

from __future__ import annotations

import fcntl
import os
import time

from ftforensics.capture import procfs
from ftforensics.capture.folder import NAME as BASE_NAME
from ftforensics.supervise.evidence import NAME as EVIDENCE_NAME

OLDEST = 7 * 86400  # seconds; what is older is history, not the previous attempt
_MOST_FOLDERS = 2000
_TAIL = 1 << 16
_RING = ".ring"
_REPORT = "report.json"


def previous_attempt(folder: str) -> str | None:
    """The newest unfinished attempt beside the new run folder (in it, when the folder's name was given). Best effort: a
    folder that cannot be read is none."""
    base = os.path.dirname(folder)
    if os.path.basename(base) != BASE_NAME:
        return folder if _unfinished(folder) else None
    try:
        with os.scandir(base) as entries:
            found = [
                (entry.stat().st_mtime, entry.path)
                for _, entry in zip(range(_MOST_FOLDERS), entries, strict=False)
                if entry.is_dir(follow_symlinks=False) and entry.path != folder
            ]
    except OSError:
        return None
    for changed, path in sorted(found, reverse=True):
        if time.time() - changed > OLDEST:
            return None
        if _unfinished(path):
            return path
    return None


def _unfinished(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    if any(name.endswith(_REPORT) for name in names):
        return False  # it was judged
    return any(
        _evidence_without_end(os.path.join(folder, name))
        if name.endswith(EVIDENCE_NAME)
        else name.endswith(_RING) and _owner_is_gone(name)
        for name in names
    )


def _evidence_without_end(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # BlockingIOError: its supervisor lives
        size = os.fstat(fd).st_size
        return size > 0 and b'"type": "ended"' not in os.pread(fd, _TAIL, max(0, size - _TAIL))
    except OSError:
        return False
    finally:
        os.close(fd)


def _owner_is_gone(name: str) -> bool:
    """HOST-rankN-PID-START.ring of this host. Of another host's nothing is known: no."""
    words = name.removesuffix(_RING).rsplit("-", 2)
    if len(words) != 3 or not (words[1].isdigit() and words[2].isdigit()):
        return False
    if not words[0].startswith(os.uname().nodename.partition(".")[0]):
        return False
    return procfs.start_ticks(int(words[1])) != int(words[2])

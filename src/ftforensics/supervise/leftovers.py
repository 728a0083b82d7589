"""What the processes of a run that ended well leave in its folder: a grep that found nothing, a worker that gave up.

Each process decides by its own status what it leaves, and cannot know that the run as a whole ended well. What tells of
an exit status or of an uncaught exception then goes. A crash record stays with its ring, and so does the ring of a
process that was killed: those are rare, and somebody may wonder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container
from contextlib import suppress

from ftforensics.capture import procfs
from ftforensics.supervise.evidence import NAME as EVIDENCE_NAME

# STEM-PID-START, and -COUNTER where that name was taken (csrc/ftf_record.c, ftf_record_name)
_NAME = re.compile(
    r"(?P<own>.*?-(?P<pid>\d{1,10})-(?P<start>\d{1,20}))(?:-\d{1,3})?(?P<suffix>\.ring|\.exception\.json)"
)
_CRASH = ".crash.json"


def remove(folder: str, ended: Container[int], killed: Container[int]) -> None:
    """ended: pids of our descendants that ended with a status other than 0, killed: those that died of a signal. A
    folder that no other supervisor uses is ours altogether, with what the short-lived ones left that were never seen.
    Best effort: what cannot be removed stays."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    alone = sum(name.endswith(EVIDENCE_NAME) for name in names) <= 1
    began = procfs.start_ticks(os.getpid()) or 0
    host = os.uname().nodename.partition(".")[0]
    crashed = {name.removesuffix(_CRASH) for name in names if name.endswith(_CRASH)}
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None or not name.startswith(host) or found["own"] in crashed:
            continue
        pid, start = int(found["pid"]), int(found["start"])
        if start < began or pid in killed or not (alone or pid in ended) or procfs.start_ticks(pid) == start:
            continue
        _unlink(os.path.join(folder, name))


def _unlink(path: str) -> None:
    """On a network file system a ring's name is a link to a file of the same name on this machine."""
    with suppress(OSError):
        target = os.readlink(path)
        if os.path.isabs(target) and os.path.basename(target) == os.path.basename(path):
            os.unlink(target)
    with suppress(OSError):
        os.unlink(path)

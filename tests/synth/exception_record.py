"""Records of uncaught exceptions written by hand: the format of `ftforensics.exception/1`, stated once more on purpose.

Nothing of `ftforensics` is imported here.

    data = exception_bytes(raised("RuntimeError", "loss is NaN", [("/job/train.py", 88, "train")]), rank=1)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

BOOT_ID = "1f0c9e1e-6a43-4b7e-a6f1-f4c6a80d7a11"
EPOCH = 1764434300.0  # the wall clock at monotonic 0, as in synth.ring


def raised(
    type: str,
    message: str = "",
    frames: Sequence[tuple[str, int, str]] = (("/job/train.py", 88, "main"),),
    *,
    link: str | None = None,
    bases: Sequence[str] = ("Exception",),
    errno: int | None = None,
    filename: str | None = None,
) -> dict[str, Any]:
    """frames: (file, line, function), outermost first; link: "cause" or "context" for all but the first exception."""
    return {
        "type": type,
        "message": message,
        "errno": errno,
        "filename": filename,
        "bases": list(bases),
        "frames": [{"file": file, "line": line, "function": function} for file, line, function in frames],
        "link": link,
    }


def exception_bytes(
    *exceptions: dict[str, Any],
    pid: int = 4242,
    start_ticks: int = 98765,
    ppid: int = 4200,
    at: float = 100.0,
    boot_id: str | None = BOOT_ID,
    host: str = "gpu-07",
    rank: int | None = None,
    local_rank: int | None = None,
    world_size: int | None = None,
    argv: Sequence[str] = ("python", "train.py"),
    hook: str = "sys.excepthook",
    thread: str | None = None,
    peer_lost: bool | None = False,
    phase: str | None = None,
    step: int | None = None,
    attempt: int | None = None,
    worker_of: int | None = None,
    schema: str = "ftforensics.exception/1",
    **more: Any,
) -> bytes:
    """A whole record. at: seconds of CLOCK_MONOTONIC; more: members that take the place of those made here."""
    members: dict[str, Any] = {
        "time": {"realtime": EPOCH + at, "monotonic": at, "boottime": at, "boot_id": boot_id},
        "process": {
            "pid": pid, "tid": pid, "ppid": ppid, "nspid": [pid], "start_ticks": start_ticks, "fork_of": None,
            "thread_name": thread or "MainThread", "main_thread": thread is None, "python": "running",
        },
        "hook": hook,
        "thread": thread,
        "peer_lost": peer_lost,
        "phase": phase,
        "step": step,
        "attempt": attempt,
        "worker_of": worker_of,
        "exceptions": list(exceptions),
        "tool": {"name": "ftforensics", "version": "0.1.0", "python": "3.11.7", "helper": "none", "raw_stack": False},
        "job": {
            "host": host, "exe": "/usr/bin/python3.11", "argv": list(argv), "cwd": "/job", "rank": rank,
            "local_rank": local_rank, "world_size": world_size, "environment": [], "cgroup": [],
        },
        **more,
    }  # fmt: skip
    lines = [f'{{"schema": {json.dumps(schema)}']
    for name, value in members.items():
        if name == "exceptions" and isinstance(value, list):
            inner = ",\n".join(json.dumps(one, ensure_ascii=False) for one in value)
            lines.append(f'"exceptions": [\n{inner}\n]')
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return (",\n".join(lines) + "\n}\n").encode()

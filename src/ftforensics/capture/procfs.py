"""Small pieces of /proc, read without `open()`: its text layer imports codecs and costs ten times a plain read."""

from __future__ import annotations

import os


def read(path: str, limit: int = 65536) -> bytes | None:
    """The first `limit` bytes of a file, or None when it cannot be opened or read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while limit > 0:
            part = os.read(fd, limit)
            if not part:
                break
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_text(path: str, limit: int = 65536) -> str | None:
    """The same as text; bytes that are not UTF-8 become surrogates as in os.fsdecode."""
    data = read(path, limit)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: field 22 of /proc/PID/stat (man 5 proc_pid_stat)."""
    stat = read(f"/proc/{pid}/stat", 4096)
    if stat is None:
        return None
    # Field 2 is the command name in parentheses and may hold blanks and parentheses itself: count from the last one.
    fields = stat[stat.rfind(b")") + 2 :].split()
    return int(fields[19]) if len(fields) > 19 else None


def parent(pid: int) -> int | None:
    """The parent's pid, field 4 of /proc/PID/stat."""
    stat = read(f"/proc/{pid}/stat", 4096)
    if stat is None:
        return None
    fields = stat[stat.rfind(b")") + 2 :].split()
    return int(fields[1]) if len(fields) > 1 else None


def thread_group(tid: int) -> int | None:
    """The process that a thread belongs to: Tgid of /proc/TID/status."""
    status = read(f"/proc/{tid}/status", 4096) or b""
    # Names are escaped in this file (man 5 proc_pid_status), so a line cannot be forged.
    for line in status.split(b"\n"):
        if line.startswith(b"Tgid:"):
            return int(line[5:])
    return None

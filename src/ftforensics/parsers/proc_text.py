"""Text of /proc about one process, for whoever may import the standard library only (`run`, beside a job).

`proc_files` has the analyser's typed values. Fields are those of man 5 proc_pid_stat, proc_pid_status, proc_pid_limits;
a text that is no such file gives nothing, not an error.
"""

from __future__ import annotations

from typing import NamedTuple


class Stat(NamedTuple):
    """Of /proc/PID/stat. start: clock ticks since boot; status: exit_code as waitpid(2), 0 as long as it runs and where
    we may not ask (fs/proc/array.c, do_task_stat)."""

    comm: str
    state: str
    parent: int
    start: int
    status: int


def stat(text: str) -> Stat | None:
    """The name stands in parentheses and may hold blanks and parentheses itself: fields count from the last one."""
    opening, closing = text.find("("), text.rfind(")")
    fields = text[closing + 2 :].split()
    if len(fields) < 50:
        return None
    try:
        return Stat(text[opening + 1 : closing], fields[0], int(fields[1]), int(fields[19]), int(fields[49]))
    except ValueError:
        return None


class Status(NamedTuple):
    """Of /proc/PID/status. uid: the real one; nspid: outermost visible namespace first; ignored: the mask SigIgn, bit
    n-1 for signal n."""

    uid: int | None = None
    nspid: tuple[int, ...] = ()
    ignored: int = 0


def status(text: str) -> Status:
    """Names are escaped in this file, so a line cannot be forged."""
    found = Status()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        try:
            if name == "Uid":
                found = found._replace(uid=int(value.split()[0]))
            elif name == "NSpid":
                found = found._replace(nspid=tuple(int(word) for word in value.split()))
            elif name == "SigIgn":
                found = found._replace(ignored=int(value, 16))
        except (ValueError, IndexError):
            continue
    return found


def variables(block: str) -> dict[str, str]:
    """Of /proc/PID/environ. Of a name that stands twice the first counts, as for getenv(3)."""
    found: dict[str, str] = {}
    for entry in block.split("\0"):
        name, equals, value = entry.partition("=")
        if equals:
            found.setdefault(name, value)
    return found


def cpu_limit(text: str) -> list[int]:
    """RLIMIT_CPU of /proc/PID/limits, seconds: soft and hard, what is unlimited left out."""
    for line in text.splitlines():
        if line.startswith("Max cpu time"):
            return [int(word) for word in line.split()[3:5] if word.isascii() and word.isdigit()]
    return []


def avg10(text: str) -> dict[str, float]:
    """Of /proc/pressure/memory: percent of the last ten seconds, by "some" and "full"."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        for word in rest.split():
            name, _, value = word.partition("=")
            if name == "avg10" and value.isascii() and value.replace(".", "", 1).isdigit():
                found[kind] = float(value)
    return found

"""Whom the OOM killer has killed, from records of /dev/kmsg as they come.

Only what `run` can say of a rank in the moment of its death; the whole report is `parsers.kernel_oom`'s. Standard
library only: `run` follows the log in an environment that may hold nothing else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# "prio,seq,usec,flag[,caller=T1];text" (Documentation/ABI/testing/dev-kmsg)
_PREFIX = re.compile(r"(\d{1,4}),\d{1,20},\d{1,20},[^;]{0,64};")
_CHOSEN = re.compile(r"oom-kill:constraint=CONSTRAINT_(\w{1,32}),(.{0,8000}),pid=(\d{1,10}),uid=\d{1,10}\Z")
_KILLED = re.compile(r"(?:(Memory cgroup out of memory|Out of memory)[^:]{0,40}: )?Killed process (\d{1,10})[ ,]")
_LIMIT, _MEMBER = ",oom_memcg=", ",task_memcg="
_KERNEL = 0  # the facility that no write to /dev/kmsg can have (kernel/printk/printk.c, devkmsg_write)


class OomVictim(NamedTuple):
    """pid: as the initial pid namespace has it; scope: "group" (a control group's limit), "machine" (its memory was
    used up), None where the line does not say; group: path of the group whose limit it was, None when not said."""

    pid: int
    scope: str | None = None
    group: str | None = None


class OomVictims:
    """Feed it the records in order."""

    def __init__(self) -> None:
        self._chosen = OomVictim(0)

    def feed(self, record: str) -> OomVictim | None:
        """Somebody has been killed, when the record is the kernel's own line that says so."""
        prefix = _PREFIX.match(record)
        if prefix is None or int(prefix[1]) >> 3 != _KERNEL:
            return None
        text = record[prefix.end() :]
        if found := _CHOSEN.match(text):
            self._chosen = OomVictim(int(found[3]), *_reason(found[1], found[2]))
            return None
        if found := _KILLED.match(text):
            pid = int(found[2])
            if self._chosen.pid == pid:
                return self._chosen
            return OomVictim(pid, "group" if found[1] == "Memory cgroup out of memory" else None)
        return None


def _reason(constraint: str, rest: str) -> tuple[str | None, str | None]:
    """(scope, group) of the line `oom-kill:`. A path with one of the marks in its own name could be read in two ways:
    then no group is named."""
    if constraint == "MEMCG":
        once = rest.count(_LIMIT) == rest.count(_MEMBER) == 1 and rest.index(_LIMIT) < rest.index(_MEMBER)
        return "group", rest.partition(_LIMIT)[2].partition(_MEMBER)[0] if once else None
    return ("machine" if constraint == "NONE" else None), None

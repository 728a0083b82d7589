"""Which records of /dev/kmsg can matter for a process's end: a coarse sieve for whoever follows the log live.

It errs towards keeping; what a kept record says, `parsers.kernel_log` tells. Standard library only: `run` follows the
log in an environment that may hold nothing else. A test compares these words with those of the parser.
"""

from __future__ import annotations

import re

_WORDS = (
    # the OOM killer
    b"oom-kill", b"oom_reaper", b"Kill", b"total_vm", b"memory.oom.group set", b"OOM victim", b"Memory cgroup",
    # faults of programs
    b" error", b"ip:", b"unhandled ", b"unexpected fatal signal", b"undefin",
    # memory that is broken
    b"hardware memory corruption", b"Memory failure: ", b"emory error", b"SIGBUS", b"Hardware Error",
    # NVIDIA
    b"NVRM: ", b"nvidia", b"SXid (",
    # storage
    b"filesystem", b"-only", b"beyond end of device", b"nfs: server ", b" timeout, ",
    # the kernel's own trouble
    b"BUG", b"Oops", b" [#", b"nable to handle ", b"Kernel panic", b"blocked ", b"for more than ", b"LOCKUP",
    b"CPU: ", b"RIP: ", b"Watchdog ",
    # lines that are not there
    b"callbacks suppressed", b" printk message", b"messages dropped", b" kernel messages",
)  # fmt: skip
_ANCHOR = re.compile(b"|".join(re.escape(word) for word in _WORDS))
# After these the lines that belong to them have no word in common: the stack and the memory statistics of an OOM
# report, the code and the stack of an oops.
_REPORT = re.compile(rb"invoked oom-killer|BUG: |BUG at |Oops| \[#")
_TABLE_HEAD = re.compile(rb"\[ {1,3}pid {1,3}\] +uid +tgid ")
# A row as the kernel prints it, after the prefix of the record: "[   4242]  1000  4242 ...".
_TABLE_ROW = re.compile(rb"[^;]{1,80};\[ {0,8}\d{1,10}\] +\d+ +\d+ ")
_AFTER = 150  # messages


class Sieve:
    """Looks at one record after the other, in order."""

    def __init__(self) -> None:
        self._more = 0
        self._in_table = False

    def wants(self, record: bytes) -> bool:
        """record: one raw record, "prio,seq,usec,flag;text"."""
        if self._more:
            self._more -= 1
        if _REPORT.search(record):
            self._more = _AFTER
        if _TABLE_HEAD.search(record):
            self._in_table = True
            return True
        if self._in_table and _TABLE_ROW.match(record):
            return True
        if _ANCHOR.search(record):
            # Lines of other processors may stand between two rows; the victim's line ends the table.
            if b"illed process" in record:
                self._in_table = False
            return True
        return self._more > 0

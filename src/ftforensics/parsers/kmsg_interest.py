"""Which records of /dev/kmsg can matter for a process's end: a coarse sieve for whoever follows the log live.

It errs towards keeping; what a kept record says, `parsers.kernel_log` tells. Standard library only: `run` follows the
log in an environment that may hold nothing else. A test compares these words with those of the parser.
"""

from __future__ import annotations

import re

_WORDS = (
    # the OOM killer
    "oom-kill|oom_reaper|Kill(?:ed)? process|total_vm|memory.oom.group set|OOM victim|memory: usage|Memory cgroup",
    # faults of programs
    "segfault at |ip:|unhandled |unexpected fatal signal|undefined instruction|undefinstr",
    # memory that is broken
    "hardware memory corruption|Memory failure: |emory error|Sending SIGBUS to |Hardware Error",
    # NVIDIA
    "NVRM: |SXid \\(",
    # storage
    "I/O error| error, dev |-fs error|only|hutting down filesystem|beyond end of device|nfs: server | timeout, ",
    # the kernel's own trouble
    "BUG: |BUG at |Oops| \\[#|nable to handle |Kernel panic|for more than |LOCKUP|CPU: |RIP: |Watchdog Timeout",
    # lines that are not there
    "callbacks suppressed|messages dropped| kernel messages",
)
_ANCHOR = re.compile("|".join(_WORDS).encode())
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

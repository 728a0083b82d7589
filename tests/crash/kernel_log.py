"""Whether the kernel wrote its line about a death: `python[123]: segfault at 28 ip ...`, `traps: ...`."""

from __future__ import annotations

import errno
import os
import re
import time
from enum import Enum

# arch/x86/mm/fault.c show_signal_msg, arch/x86/kernel/traps.c: comm[tid], and the tid is the thread's.
FAULT_LINE = re.compile(r"\[(\d+)\]:? (?:segfault at|trap |general protection fault|bad frame)")
SUPPRESSED = re.compile(r"show_signal\w*: \d+ callbacks suppressed|callbacks suppressed")


class Seen(Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "?"  # not readable, or the kernel says that it left lines out


class KernelLog:
    """Reads /dev/kmsg from now on. The kernel allows 10 such lines in 5 s (printk_ratelimit): `pace` keeps below."""

    def __init__(self) -> None:
        try:
            self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.fd, 0, os.SEEK_END)
        except OSError:
            self.fd = -1
        self.recent: list[float] = []

    def pace(self) -> None:
        while True:
            self.read()
            self.recent = [at for at in self.recent if at > time.monotonic() - 5.2]
            if len(self.recent) < 7:
                return
            time.sleep(0.3)

    def read(self) -> list[str]:
        lines: list[str] = []
        while self.fd >= 0:
            try:
                lines.append(os.read(self.fd, 8192).decode(errors="replace"))
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten before we read: the next read goes on
                    continue
                break
        self.recent += [time.monotonic() for line in lines if FAULT_LINE.search(line)]
        return lines

    def saw(self, first_pid: int, last_pid: int) -> Seen:
        """Whether a thread with an id in this range was named since the last call."""
        if self.fd < 0:
            return Seen.UNKNOWN
        lines = self.read()
        for line in lines:
            found = FAULT_LINE.search(line)
            if found and first_pid <= int(found[1]) <= last_pid:
                return Seen.YES
        return Seen.UNKNOWN if any(SUPPRESSED.search(line) for line in lines) else Seen.NO

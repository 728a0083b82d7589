"""The kernel log from now on, read as it is written: afterwards its ring may have turned over, or be out of reach.

/dev/kmsg (Documentation/ABI/testing/dev-kmsg) gives one record a read(2), numbered without a gap. From the numbers
`analyze` knows that nothing is missing, so every record is kept at first. Once `_FOR_ALL` bytes are spent (some hosts
log every dropped packet) only what can matter for a process's end is, and after `_MOST` bytes nothing; both are told.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ftforensics.parsers.kmsg_interest import Sieve

OnGap = Callable[[str, "str | None"], None]

PLACE = "/dev/kmsg"
# Stands in the place of records that are lost; `parsers.kernel_log` knows it.
OVERRUN = "<overrun>"

_FOR_ALL = 1 << 20
_MOST = 4 << 20
_RECORD = 8192  # the kernel's own limit (CONSOLE_EXT_LOG_MAX; 2048 since 6.2); a smaller buffer is EINVAL
_MOST_AT_ONCE = 20_000  # records; the largest usual ring holds fewer


class KernelFollow:
    """fd: readable (poll) when there is a new record."""

    def __init__(self, fd: int, on_gap: OnGap) -> None:
        self.fd = fd
        self._on_gap = on_gap
        self._sieve = Sieve()
        self._spent = 0
        self._full = False
        self._broken = False

    def read(self) -> list[str]:
        """New records, oldest first, "prio,seq,usec,flag;text" without the dictionary lines behind it; OVERRUN where
        some are lost. Never blocks. A record is there before the process that it is about can be seen to be dead."""
        kept: list[str] = []
        for _ in range(_MOST_AT_ONCE):
            try:
                data = os.read(self.fd, _RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten before we came to read; the next read goes on behind it
                    kept.append(OVERRUN)
                    continue
                if not self._broken:
                    self._broken = True
                    self._on_gap(f"{PLACE} can no longer be read ({error.strerror})", None)
                break
            if not data:
                break
            self._offer(data.partition(b"\n")[0], kept)
        return kept

    def close(self) -> None:
        os.close(self.fd)

    def _offer(self, record: bytes, kept: list[str]) -> None:
        wanted = self._sieve.wants(record)  # always asked: it follows reports over several records
        if self._full or (self._spent > _FOR_ALL and not wanted):
            return
        if self._spent > _MOST:
            self._full = True
            kept.append(OVERRUN)
            self._on_gap(
                f"the kernel log of this run is kept up to {_MOST >> 20} MB only; later lines are missing", None
            )
            return
        self._spent += len(record)
        kept.append(record.decode("ascii", "backslashreplace"))  # the kernel has escaped what is not printable


def follow_kernel(on_gap: OnGap, place: str = PLACE) -> KernelFollow | None:
    """Follow the log from its end on. None when it may not be read; then `on_gap(why, grant)` was called once."""
    try:
        fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        on_gap(*_refused(error, place))
        return None
    try:
        os.lseek(fd, 0, os.SEEK_END)
    except OSError as error:
        os.close(fd)
        on_gap(*_refused(error, place))
        return None
    return KernelFollow(fd, on_gap)


def _refused(error: OSError, place: str) -> tuple[str, str | None]:
    why = f"the kernel log is not followed: {place}: {error.strerror}"
    if error.errno in (errno.ENOENT, errno.ENXIO):
        return f"{why} (a container without the device)", "docker run --device /dev/kmsg --cap-add SYSLOG ..."
    if error.errno == errno.EPERM:  # syslog(2): kernel.dmesg_restrict without CAP_SYSLOG
        return f"{why} (kernel.dmesg_restrict is on)", "sudo sysctl kernel.dmesg_restrict=0"
    if error.errno == errno.EACCES:
        return why, f"sudo chmod o+r {place} && sudo sysctl kernel.dmesg_restrict=0"
    return why, None

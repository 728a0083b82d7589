"""Lets the handler print Python stacks through CPython's public door.

`faulthandler.register()` installs a C signal handler that walks the Python frames and writes them to a descriptor,
without allocating. We register it for two real-time signals that nobody uses, the extension reads the two function
pointers with sigaction and gives the signals back. The handler then calls the functions itself. Two of them, because
with all threads faulthandler stops at 100, and the crashing thread may not be among those (seen with 300).

The text goes to a memfd rather than to the record: a dump may be cut short, and only finished text is copied.
"""

from __future__ import annotations

import os

from ftforensics.capture import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# High, where nobody's `for fd in range(3, 100): close(fd)` passes; lower when RLIMIT_NOFILE is small.
_FLOORS = (600, 200, 60, 20, 3)


class Dumper:
    """The two registered signals and the memfd they print to."""

    def __init__(self) -> None:
        """Raises OSError or ImportError when this interpreter or kernel cannot do it."""
        import faulthandler

        self._faulthandler = faulthandler
        self.signals: list[int] = []
        self.fd = _high_memfd()
        self._identity = _identity(self.fd)
        try:
            for number, every in zip(_unused_signals(2), (False, True), strict=True):
                faulthandler.register(number, file=self.fd, all_threads=every, chain=False)
                self.signals.append(number)
        except BaseException:
            self.close()
            raise

    def hand_over(self, native: ModuleType) -> None:
        """The extension takes the two handlers and gives the signals back as they were."""
        native.set_python_dumper(self.signals[0], self.signals[1], self.fd)

    def after_fork_child(self) -> None:
        """Parent and child would share one file offset: the child gets a memfd of its own under the same number."""
        if not self.is_ours():
            return
        fresh = os.memfd_create("ftforensics-python", os.MFD_CLOEXEC)
        try:
            os.dup2(fresh, self.fd, inheritable=False)
            self._identity = _identity(self.fd)
        finally:
            os.close(fresh)

    def is_ours(self) -> bool:
        """Whether the descriptor still is what we opened: the job may have closed it and got its number for a file."""
        try:
            return _identity(self.fd) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        for number in self.signals:
            self._faulthandler.unregister(number)
        self.signals.clear()
        if self.is_ours():
            os.close(self.fd)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _high_memfd() -> int:
    # Not by the fcntl module: it is a file of its own, and loading it takes a third of a millisecond.
    from ftforensics import _native

    low = os.memfd_create("ftforensics-python", os.MFD_CLOEXEC)
    try:
        for floor in _FLOORS:
            try:
                return _native.duplicate(low, floor)
            except OSError:  # EINVAL: the floor is above RLIMIT_NOFILE; EMFILE: everything above it is taken
                continue
        raise OSError(24, "Too many open files")
    finally:
        os.close(low)


def _unused_signals(count: int) -> list[int]:
    """Real-time signals that are neither caught nor ignored, the highest first. Asked of the kernel, because Python's
    signal.getsignal does not know what C libraries have installed since."""
    taken = 0
    for line in (procfs.read("/proc/self/status", 8192) or b"").splitlines():
        if line.startswith((b"SigCgt:", b"SigIgn:")):
            taken |= int(line.split()[1], 16)
    # 64 is SIGRTMAX on every architecture that we build for; glibc keeps 32 and 33 for itself.
    free = [number for number in range(64, 34, -1) if not taken >> (number - 1) & 1]
    if len(free) < count:
        raise OSError(16, "no unused real-time signal")
    return free[:count]

"""Ends this process as the command ended: the same exit status, or the same signal."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress
from typing import NoReturn

from ftforensics.supervise import linux


def exit_code(status: int) -> int:
    """What a shell says about a wait status: the code, or 128 + the signal."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def end_like(status: int) -> int:
    """Does not return when the command died of a signal: neither do we. Else the exit code, for the caller to exit
    with.

    No core file: the job's own must stay. As pid 1 of a container we cannot die of a signal that we send (man 7
    pid_namespaces), and 128 + n is what a container's runtime says of one.
    """
    if os.WIFSIGNALED(status) and os.getpid() != 1:
        die_of(os.WTERMSIG(status))
    return exit_code(status)


def die_of(number: int) -> NoReturn:
    with suppress(OSError, ValueError):
        # Lower the limit, and mark ourselves: a program behind core_pattern's pipe is started whatever the limit.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        linux.never_dump_core()
    with suppress(OSError, ValueError):  # SIGKILL; 32 and 33, which glibc keeps for itself and which nobody handles
        signal.signal(number, signal.SIG_DFL)
    with suppress(OSError, ValueError):
        # If blocked until now, it is delivered before the second call returns. SIGKILL needs no unblocking.
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os._exit(128 + number)

"""Another process sent the signal.

## What it means

The program did nothing wrong: some other process, named by its pid, sent it a signal that ends it. That may be a
person with `kill`, a launcher, a watchdog, or a script. Even a "segmentation fault" can be sent this way; it is then
no fault.

## How it is told apart

The kernel tells the receiver of a signal where it comes from. With `si_code` SI_USER (kill) or SI_TKILL (tgkill) the
kernel fills in the sender's pid itself and lets no sender write another one, so a sender's pid different from every
pid of this process is proven: the kernel is the authority, and it names this process and the other one. With SI_QUEUE
the sender may write any pid, so that is only likely; so it is when the thread was just raising a signal of its own. A
signal raised by the process itself, also one passed on by another library's handler, is never counted here. Pid 0
means: from outside this container's process namespace.

## What to do

1. Find out who that pid is: the launcher's log, `ps`, or the audit log of the node.
2. If it is the launcher, look at which rank died first: this one was taken down because of it.
3. If nobody knows it, trace signals during the next run: `perf trace -e signal:signal_generate`, as root.

## Seen in the field

- torchrun sends SIGTERM to all ranks once one has failed.
- Scripts that clean up "hung" processes by name and hit a healthy one.
- `kill -ABRT` by hand, to get a core file of a hanging rank.

## References

- man 2 kill, man 2 tgkill, man 3 sigqueue, man 2 sigaction (si_code, si_pid); Linux kernel/signal.c,
  do_rt_sigqueueinfo: a foreign si_code of zero or above, or SI_TKILL, is refused
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import find_function, places
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism

KIND = Kind.KILLER
_SI_USER, _SI_TKILL = 0, -6
_RAISING = ("abort", "raise", "gsignal", "os_abort", "signal_raise_signal")


def check(crash: Crash) -> Iterator[Finding]:
    signal = crash.record.signal
    if signal is None or signal.sender is None:
        return
    if crash.reading.mechanism not in (Mechanism.SENT_BY_PROCESS, Mechanism.KILLED):
        return
    process = crash.record.process
    if process is None or process.pid is None or process.pid == signal.sender.pid:
        return
    forgeable = signal.code not in (_SI_USER, _SI_TKILL)
    raising = find_function(crash, _RAISING, depth=4)
    against = [] if raising is None else [msgspec.structs.replace(raising, text=f"this thread was in {raising.text}")]
    supports = list(crash.reading.supports)
    supports.append(Cite("crash", "process.pid", f"this process was {process.pid}, not {signal.sender.pid}"))
    if process.ppid == signal.sender.pid:
        supports.append(Cite("crash", "process.ppid", f"{signal.sender.pid} is the parent process"))
    sender = f"pid {signal.sender.pid}" if signal.sender.pid else "a process outside this pid namespace"
    yield Finding(
        cause="killed-by-process",
        confidence=Confidence.LIKELY if forgeable or against else Confidence.PROVEN,
        summary=f"{signal.name or 'A signal'} was sent by {sender} (uid {signal.sender.uid}); "
        "the program itself did not fault.",
        supports=[*supports, *places(crash)],
        against=against,
        remedies=[
            Remedy(f"Find out what {sender} was", f"ps -fp {signal.sender.pid}" if signal.sender.pid else None),
            Remedy("If it was the launcher, look at which rank ended first: this one was taken down because of it"),
        ],
    )

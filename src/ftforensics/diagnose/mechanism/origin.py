"""Who raised the signal: the hardware, the process itself, or somebody else (man sigaction, si_code and si_pid)."""

from __future__ import annotations

from enum import Enum

from ftforensics.model.basics import Cite
from ftforensics.model.crash import CrashRecord

SI_USER, SI_QUEUE, SI_TKILL, SI_KERNEL = 0, -1, -6, 0x80
# Codes of signals that nobody but the process itself can have asked the kernel for (man 2 timer_create, man 3
# mq_notify, man 7 aio). Whoever may signal the process can forge them, as every negative code but SI_TKILL.
ARRANGED = {
    -2: "a timer that the program set (timer_create)",
    -3: "a message queue that the program listens to (mq_notify)",
    -4: "asynchronous I/O that the program started (aio)",
}


class Origin(str, Enum):
    KERNEL = "kernel"  # a fault, or a signal of the kernel's own
    OWN_PROCESS = "own process"  # raise(), abort(), kill(getpid()), or a handler that passed the signal on
    ARRANGED = "arranged"  # by the process itself, sent by the kernel later
    OTHER_PROCESS = "other process"
    UNKNOWN = "unknown"


def signal_origin(record: CrashRecord) -> tuple[Origin, Cite]:
    signal = record.signal
    assert signal is not None
    name = signal.name or f"signal {signal.number}"
    code = signal.code_name or (f"si_code {signal.code}" if signal.code is not None else "si_code unknown")
    if signal.via is not None:
        return Origin.OWN_PROCESS, Cite(
            "crash", "signal.via", f"{name} was raised again by the handler at {signal.via}"
        )
    if signal.code is None:
        return Origin.UNKNOWN, Cite("crash", "signal", f"{name}, {code}")
    if signal.code > 0:
        return Origin.KERNEL, Cite("crash", "signal.code", f"{name}, {code}")
    if signal.code in ARRANGED:
        return Origin.ARRANGED, Cite("crash", "signal.code", f"{name}, {code}: {ARRANGED[signal.code]}")
    if signal.sender is None:
        return Origin.UNKNOWN, Cite("crash", "signal.code", f"{name}, {code}, sender not recorded")
    cite = Cite("crash", "signal.sender", f"{name}, {code}, from pid {signal.sender.pid} (uid {signal.sender.uid})")
    process = record.process
    if process is None or process.pid is None:
        return Origin.UNKNOWN, cite  # without our own pid nobody can say whose that is
    # si_pid is in our own pid namespace: pids of outer namespaces (the front of nspid) may be anybody's in ours.
    own = {process.pid, *process.nspid[-1:]}
    return (Origin.OWN_PROCESS if signal.sender.pid in own else Origin.OTHER_PROCESS), cite

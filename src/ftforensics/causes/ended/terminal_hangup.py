"""The terminal or the connection it was started from went away.

## What it means

When a terminal is closed or an ssh connection breaks, the kernel sends SIGHUP to the programs that run in it. A program
that does not handle or ignore it ends with status -1, or 129 where a shell reports it.

## How it is told apart

SIGHUP ended the process. It is proven when the recorder noted that the kernel itself sent it, which it does for a
terminal only, and the wait status fits; likely by the wait status alone, or where torchrun says that it ended itself
because of SIGHUP (SignalException). Where a process sent it, `killed-by-process` or `launcher-teardown` speaks.

## What to do

1. Start long jobs in tmux, with `setsid`, `systemd-run --user`, or through a scheduler. `nohup` does not help torchrun:
   it handles SIGHUP itself, and so no longer ignores it.

## Seen in the field

- Overnight training over ssh, from a laptop that went to sleep.

## References

- PyTorch source, torch/distributed/elastic/multiprocessing/api.py, `_terminate_process_handler`; pytorch issue 67538
- man 7 signal; man 4 tty; man 1 setsid; Linux drivers/tty/tty_jobctrl.c
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import SI_KERNEL, is_own, last_signal, only_the_ring_says, senders, signal_of
from ftforensics.causes.raised import signal_answered
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

KIND = Kind.KILLER
_SIGHUP = 1


def check_death(death: Death) -> Iterator[Finding]:
    answered = signal_answered(death)
    if answered is not None and answered[0] == _SIGHUP:
        if not _came_from_a_process(death):
            yield _finding(Confidence.LIKELY, "Ended itself because of SIGHUP", [*answered[1], *death.ending])
        return
    if death.alive or signal_of(death) != _SIGHUP or any(not is_own(death, one) for one in senders(death)):
        return
    noted = last_signal(death)
    if noted is not None and noted.signal.code != SI_KERNEL:
        return
    sure = noted is not None and death.signal == _SIGHUP and not only_the_ring_says(death)
    # A terminal takes the whole session along: a launcher that lived to report it was not hung up itself.
    outlived = noted is None and death.first and any(one.source == "launcher" for one in death.ending)
    likely = death.signal is not None and not outlived
    confidence = Confidence.PROVEN if sure else Confidence.LIKELY if likely else Confidence.POSSIBLE
    yield _finding(confidence, "Ended by SIGHUP", [*([noted.cite] if noted is not None else []), *death.ending])


def _came_from_a_process(death: Death) -> bool:
    return any(
        one.sent.signal == _SIGHUP and not one.by_kernel and not is_own(death, one) for one in death.sent
    ) or any(one.signal.number == _SIGHUP and one.signal.code != SI_KERNEL for one in death.signals)


def _finding(confidence: Confidence, ended: str, supports: list[Cite]) -> Finding:
    return Finding(
        cause="terminal-hangup",
        confidence=confidence,
        summary=f"{ended}: the terminal or connection it was started from went away.",
        supports=list(dict.fromkeys(supports)),
        remedies=[
            Remedy(
                "Start it where no terminal takes it along: tmux, a scheduler, or this (nohup is no help to torchrun)",
                "setsid COMMAND... > log 2>&1 < /dev/null &",
            )
        ],
    )

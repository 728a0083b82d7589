"""The terminal or the connection it was started from went away.

## What it means

When a terminal is closed or an ssh connection breaks, the kernel sends SIGHUP to the programs that run in it. A program
that does not handle or ignore it ends with status -1, or 129 where a shell reports it.

## How it is told apart

SIGHUP ended the process. It is proven when the recorder noted that the kernel itself sent it, which it does for a
terminal only, and the wait status fits; likely by the wait status alone. Where a process sent it, `killed-by-process`
or `launcher-teardown` speaks.

## What to do

1. Start long jobs in tmux, with `nohup`, `setsid`, `systemd-run --user`, or through a scheduler.

## Seen in the field

- Overnight training over ssh, from a laptop that went to sleep.

## References

- man 7 signal; man 4 tty; man 1 nohup; Linux drivers/tty/tty_jobctrl.c
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import SI_KERNEL, is_own, last_signal, only_the_ring_says, senders, signal_of
from ftforensics.causes.registry import Kind
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

KIND = Kind.KILLER
_SIGHUP = 1


def check_death(death: Death) -> Iterator[Finding]:
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
    yield Finding(
        cause="terminal-hangup",
        confidence=confidence,
        summary="Ended by SIGHUP: the terminal or connection it was started from went away.",
        supports=[*([noted.cite] if noted is not None else []), *death.ending],
        remedies=[
            Remedy(
                "Start it where no terminal can take it along: tmux, a scheduler, or this",
                "nohup COMMAND... > log 2>&1 &",
            )
        ],
    )

"""The container, pod or service was stopped.

## What it means

Somebody or something asked the container runtime, the kubelet or systemd to stop what this process runs in: `docker
stop`, a deleted pod, a failed liveness probe, `systemctl stop`. All processes get SIGTERM, and after a grace time (10
seconds for Docker, 30 for a pod, 90 for a service) SIGKILL. The exit status is 143 or 137.

## How it is told apart

The authority says so: a stop or kill event of Docker, a Killing event or a reason in the pod's status, systemd's own
line about the unit. It is proven when that is this process's container or unit, its end follows within the grace time,
and nothing speaks against it; otherwise likely. A SIGTERM that the recorder saw from outside the container, with a
SIGKILL at one of the usual grace times after it, is only possible: a scheduler does the same.

## What to do

1. Look at who stopped it: the events of the pod, `docker events`, the journal.
2. Let the job save on SIGTERM, and give it enough grace time for that.

## Seen in the field

- A liveness probe that a busy training loop does not answer.
- The session's scope is stopped at log-out, and the training that was started in it.

## References

- Docker documentation, "docker stop"; Kubernetes documentation, "Pod Lifecycle" (termination)
- man 5 systemd.kill; man 5 logind.conf (KillUserProcesses)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import has_said, statement
from ftforensics.causes.ending import SIGKILL, SIGTERM, is_killed
from ftforensics.causes.registry import Kind
from ftforensics.causes.scheduler import name_of
from ftforensics.causes.sizes import time_text
from ftforensics.model.death import Death, SignalMatch
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.notice import Notice

KIND = Kind.KILLER
_ENDINGS = (SIGKILL, SIGTERM, 2, 3)  # an image may name another STOPSIGNAL
_GRACE_TIMES = (10.0, 30.0, 90.0)
_LATE = 1.5  # seconds that a runtime may take beyond


def check_death(death: Death) -> Iterator[Finding]:
    remedies = [
        Remedy("Find out who stopped it: the events of the pod or container, or the journal of the unit"),
        Remedy("Let the job save on SIGTERM, and raise the grace time so that it can"),
    ]
    said = statement(death, ("docker", "kubernetes", "systemd"), "stopped", "killed", endings=_ENDINGS)
    if said is not None and not _has_better(death, said.notice):
        what = said.notice.unit or said.notice.group or "what it ran in"
        reason = f" ({said.notice.reason})" if said.notice.reason else ""
        yield Finding(
            cause="container-stopped",
            confidence=said.confidence,
            summary=f"{name_of(said.notice.authority)} stopped {what}{reason}.",
            supports=said.supports,
            against=said.against,
            remedies=remedies,
        )
        return
    asked = _asked_from_outside(death)
    if asked is not None and asked.before is not None:
        yield Finding(
            cause="container-stopped",
            confidence=Confidence.POSSIBLE,
            summary=f"SIGTERM came from outside the container {time_text(asked.before)} before SIGKILL, "
            "as when a container is stopped.",
            supports=[asked.cite, *death.ending],
            remedies=remedies,
        )


def _has_better(death: Death, notice: Notice) -> bool:
    """Does the same authority give the reason, or did it pass on another signal than one that ends things?"""
    if notice.signal is not None and notice.signal not in _ENDINGS:
        return True
    if has_said(death, notice.authority, "evicted", "preempted", "deadline", "time-limit", "node-failed"):
        return True
    return notice.authority == "systemd" and has_said(death, "systemd-oomd", "killed")


def _asked_from_outside(death: Death) -> SignalMatch | None:
    """A SIGTERM of a sender outside the pid namespace, one of the usual grace times before the SIGKILL."""
    if death.alive or not is_killed(death):
        return None
    for one in death.signals:
        sender = one.signal.sender
        if one.signal.number != SIGTERM or sender is None or sender.pid != 0 or one.before is None:
            continue
        if any(grace - 0.5 <= one.before <= grace + _LATE for grace in _GRACE_TIMES):
            return one
    return None

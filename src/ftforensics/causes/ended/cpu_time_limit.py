"""The process used up its limit of processor time.

## What it means

`ulimit -t`, or a site's limits for login nodes, give each process so many seconds of processor time. All threads count
together: 16 busy threads use up an hour in less than four minutes. At the soft limit the kernel sends SIGXCPU, at the
hard limit SIGKILL; `ulimit -t` sets both to the same number, and then only SIGKILL is seen.

## How it is told apart

SIGXCPU is proven to come from the limit when the recorder or a tracer saw that the kernel itself sent it; by the wait
status alone it is likely, since a program may send it too. A SIGKILL is proven when the kernel's line "CPU Watchdog
Timeout" names this process by its exact pid, or when a tracer saw that the kernel itself sent it, the time used equals
the hard limit, and counters exclude a kill for want of memory. It is likely when the time used equals the hard limit.
Where less time was used than the limit allows, this cause says nothing.

## What to do

1. Raise the limit (`ulimit -t unlimited`), or run where it does not apply: on a compute node rather than a login node.

## Seen in the field

- Preprocessing on a login node that ends after the same time every day.

## References

- man 2 setrlimit (RLIMIT_CPU); Linux kernel/time/posix-cpu-timers.c, check_process_timers
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.ending import (
    SI_KERNEL,
    SIGKILL,
    is_own,
    last_signal,
    only_the_ring_says,
    rank_of,
    senders,
    sent_by_kernel,
    signal_of,
    strength,
    weaker,
)
from ftforensics.causes.oom import exclusions
from ftforensics.causes.registry import Kind
from ftforensics.causes.sizes import time_text
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.kernel import CpuLimit

KIND = Kind.KILLER
_SIGXCPU = 24
_LATE = 2.0  # seconds


def check_death(death: Death) -> Iterator[Finding]:
    number = signal_of(death)
    if death.alive or number not in (_SIGXCPU, SIGKILL):
        return
    if any(not is_own(death, one) for one in senders(death)):
        return
    yield from _soft(death) if number == _SIGXCPU else _hard(death)


def _soft(death: Death) -> Iterator[Finding]:
    noted, traced = last_signal(death), sent_by_kernel(death)
    if noted is not None and noted.signal.code != SI_KERNEL:
        return
    by_kernel = noted is not None or (traced is not None and traced.match.sure)
    against = []
    seconds, limit = _at_most(death), death.cpu_limit_soft
    if seconds is not None and limit is not None and seconds < limit - _slack(limit):
        against.append(_used(death, seconds, limit, "soft"))
    confidence = Confidence.PROVEN if by_kernel and not only_the_ring_says(death) else Confidence.LIKELY
    if against:
        confidence = weaker(confidence, Confidence.POSSIBLE)
    supports = [one.cite for one in (noted, traced) if one is not None]
    if seconds is not None and limit is not None and not against:
        supports.append(_used(death, seconds, limit, "soft"))
    yield _finding(death, confidence, limit, supports, against)


def _hard(death: Death) -> Iterator[Finding]:
    lines = [one for one in death.kernel if isinstance(one.event, CpuLimit)]
    if lines:
        best = min(lines, key=lambda one: rank_of(strength(one.match.tie, one.match.against)))
        confidence = strength(best.match.tie, best.match.against)
        if best.event.line.forgeable:
            confidence = weaker(confidence, Confidence.POSSIBLE)
        yield _finding(death, confidence, death.cpu_limit_hard, [best.cite, *best.match.why], best.match.against)
        return
    limit = death.cpu_limit_hard
    seconds = _reached(death, limit) if limit is not None else None
    if limit is None or seconds is None:
        return
    traced = sent_by_kernel(death)
    excluded = exclusions(death)
    against = [one.cite for one in death.oom]
    confidence = Confidence.LIKELY
    if traced is not None and traced.match.sure and excluded:
        confidence = Confidence.PROVEN
    if against:
        confidence = Confidence.POSSIBLE
    supports = [*([traced.cite] if traced is not None else []), _used(death, seconds, limit, "hard"), *excluded]
    yield _finding(death, confidence, limit, supports, against)


def _reached(death: Death, limit: int) -> float | None:
    """The processor time used, when it is that of the hard limit.

    rusage counts the children that were waited for too, so it is an upper bound; the recorder's last value is a lower
    one, and grows by at most one second a second and thread.
    """
    most, least = _at_most(death), _at_least(death)
    if most is not None and (most < limit - _slack(limit) or (least is None and most > limit + _LATE)):
        return None
    if least is not None:
        slow = death.ring.slow[-1] if death.ring is not None and death.ring.slow else None
        room = 1.0 + min(slow.threads or 1, 64) * 1.0 if slow is not None else 1.0
        if not limit - room - _slack(limit) <= least <= limit + _LATE:
            return None
    return most if most is not None else least


def _at_most(death: Death) -> float | None:
    if death.usage is None or death.usage.user is None:
        return None
    return death.usage.user + (death.usage.system or 0.0)


def _at_least(death: Death) -> float | None:
    samples = death.ring.slow if death.ring is not None else []
    return next((sample.cpu_seconds for sample in reversed(samples) if sample.cpu_seconds is not None), None)


def _used(death: Death, seconds: float, limit: int, kind: str) -> Cite:
    source = "run" if _at_most(death) is not None else "ring"
    return Cite(source, "processor time", f"{seconds:.1f} s of processor time used, {kind} limit {limit} s")


def _slack(limit: int) -> float:
    """The kernel compares the limit with ticks, rusage tells scaled times: a busy virtual machine had 1.7 s of 2."""
    return max(1.0, limit * 0.05)


def _finding(
    death: Death, confidence: Confidence, limit: int | None, supports: list[Cite], against: list[Cite]
) -> Finding:
    of = f" of {time_text(limit)}" if limit is not None else ""
    return Finding(
        cause="cpu-time-limit",
        confidence=confidence,
        summary=f"Ended by the kernel: its limit{of} of processor time was used up.",
        supports=[*supports, *death.ending],
        against=against,
        remedies=[
            Remedy(
                "Raise the limit in the shell that starts the job, or run where there is none", "ulimit -t unlimited"
            )
        ],
    )

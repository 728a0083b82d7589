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

SIGKILL leaves no such note in the process. There the authority is the kernel's tracepoint signal_generate, which
`ftforensics run` follows as root: it names sender and receiver. Without it the sender of a SIGKILL is not known
afterwards. Where the sender is the launcher, a memory daemon or a scheduler that says so itself, that cause speaks
instead of this one; a signal that a parent left to be sent at its own end is `parent-died`. A program that answers
a signal by ending itself (torchrun raises SignalException) was told to by its sender: that is likely.

## What to do

1. Find out who that pid is: the launcher's log, `ps`, or the audit log of the node.
2. If it is the launcher, look at which rank died first: this one was taken down because of it.
3. If nobody knows it, run the next attempt under `ftforensics run` as root: it traces who sends SIGKILL.

## Seen in the field

- torchrun sends SIGTERM to all ranks once one has failed.
- Scripts that clean up "hung" processes by name and hit a healthy one.
- `kill -ABRT` by hand, to get a core file of a hanging rank.
- `timeout -s KILL` around the launcher.

## References

- man 2 kill, man 2 tgkill, man 3 sigqueue, man 2 sigaction (si_code, si_pid); Linux kernel/signal.c,
  do_rt_sigqueueinfo: a foreign si_code of zero or above, or SI_TKILL, is refused
- Linux include/trace/events/signal.h, signal_generate
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ftforensics.causes.authority import acts_for, decisions, named_by_kernel
from ftforensics.causes.ending import (
    SI_TKILL,
    SI_USER,
    asked_to_end,
    best_tied,
    is_killed,
    is_own,
    is_unseen,
    last_signal,
    only_the_ring_says,
    process_text,
    sender_text,
    senders,
    signal_of,
    strength,
    weaker,
)
from ftforensics.causes.raised import signal_answered
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import find_function, places
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.death import Death, SentMatch, SignalMatch
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism
from ftforensics.model.signals import signal_name

KIND = Kind.KILLER
# Daemons that kill for want of memory, and for nothing else.
_DAEMONS = ("earlyoom", "systemd-oomd")
_ROLES = {
    "parent": "its parent process, ",
    "sibling": "another process of the job, ",
}
_SIGINT = 2
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
    forgeable = signal.code not in (SI_USER, SI_TKILL)
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


def check_death(death: Death) -> Iterator[Finding]:
    # What the crash record of a fatal signal says is said by `check`; nobody records a SIGKILL.
    if death.alive or (death.crash is not None and not is_killed(death)):
        return
    traced = [sent for sent in senders(death) if not _is_explained(death, sent)]
    if traced:
        yield _by_trace(death, best_tied(traced))
        return
    answered = signal_answered(death)
    if answered is not None:
        yield from _by_its_answer(death, *answered)
        return
    if not any(True for _ in senders(death)) and (seen := _recorded(death)) is not None:
        yield from _by_recorder(death, seen)


def _is_explained(death: Death, sent: SentMatch) -> bool:
    """Does another cause say more about this sender?"""
    if sent.sender_role == "launcher" or is_own(death, sent):
        return True
    if sent.sender_role == "parent" and death.parent_died is not None:
        return True
    if sent.sent.sender_comm in _DAEMONS:
        return True
    return any(acts_for(sent.sent.sender_comm, one.notice.authority) for one in decisions(death))


def _by_trace(death: Death, sent: SentMatch) -> Finding:
    name = signal_name(sent.sent.signal)
    sender = sender_text(sent)
    against = [*sent.match.against, *named_by_kernel(death)]
    return Finding(
        cause="killed-by-process",
        confidence=strength(sent.match.tie, against),
        summary=f"{name} was sent by {_ROLES.get(sent.sender_role or '', '')}{sender}.",
        supports=[sent.cite, *sent.match.why, *death.ending],
        against=against,
        remedies=_about(sender),
    )


def _by_its_answer(death: Death, number: int, said: list[Cite]) -> Iterator[Finding]:
    """It ended itself because it was told to. An interrupt has a cause of its own."""
    if number == _SIGINT or decisions(death):
        return
    sent = [one for one in death.sent if one.sent.signal == number and not one.by_kernel and not is_own(death, one)]
    noted = [one for one in death.signals if one.signal.number == number and one.signal.sender is not None]
    if sent:
        best = best_tied(sent)
        who, cites, against = sender_text(best), [best.cite, *best.match.why], best.match.against
        role = best.sender_role
    elif noted and noted[-1].signal.sender is not None:
        seen = noted[-1]
        who = process_text(seen.sender_comm, noted[-1].signal.sender.pid, noted[-1].signal.sender.uid)
        cites, against, role = [seen.cite], [], seen.sender_role
    else:
        return
    if role == "launcher":
        return
    yield Finding(
        cause="killed-by-process",
        confidence=Confidence.POSSIBLE if against else Confidence.LIKELY,
        summary=f"{signal_name(number)} was sent by {_ROLES.get(role or '', '')}{who}, and the program ended itself.",
        supports=[*cites, *said, *death.ending],
        against=[*against, *named_by_kernel(death)],
        remedies=_about(who),
    )


def _recorded(death: Death) -> SignalMatch | None:
    """The recorder's note of the signal that ended it; when the end was not seen, of the last one that could."""
    if not is_unseen(death):
        return last_signal(death) or _before_the_kill(death)
    fatal = [one for one in death.signals if one.signal.fatal]
    return fatal[-1] if fatal else None


def _before_the_kill(death: Death) -> SignalMatch | None:
    """A SIGTERM shortly before a SIGKILL: whoever sent the first has often sent the second."""
    asked = asked_to_end(death)
    return asked[-1] if asked and is_killed(death) else None


def _by_recorder(death: Death, seen: SignalMatch) -> Iterator[Finding]:
    sender, code = seen.signal.sender, seen.signal.code
    if sender is None or sender.pid == death.pid or seen.sender_role == "launcher" or (code or 0) > 0:
        return
    if death.parent_died is not None and seen.sender_role == "parent":
        return
    # Who sends for a scheduler or a daemon is told by its name; a sender without one may be it.
    if any(not seen.sender_comm or acts_for(seen.sender_comm, one.notice.authority) for one in decisions(death)):
        return
    name = signal_name(seen.signal.number)
    outside = f"a process outside this pid namespace (uid {sender.uid})"
    who = process_text(seen.sender_comm, sender.pid, sender.uid) if sender.pid else outside
    same = seen.signal.number == signal_of(death)
    against = named_by_kernel(death)
    confidence = Confidence.PROVEN
    if not same:
        confidence = Confidence.LIKELY if is_unseen(death) else Confidence.POSSIBLE
    # With another si_code the sender may write any pid; 0 names nobody.
    if code not in (SI_USER, SI_TKILL) or sender.pid == 0 or against or only_the_ring_says(death):
        confidence = weaker(confidence, Confidence.LIKELY)
    ended = f"{name} was sent by {_ROLES.get(seen.sender_role or '', '')}{who}"
    yield Finding(
        cause="killed-by-process",
        confidence=confidence,
        summary=f"{ended}." if same or is_unseen(death) else f"{ended} before it was killed.",
        supports=[seen.cite, *death.ending],
        against=against,
        remedies=_about(who),
    )


def _about(sender: str) -> list[Remedy]:
    return [
        Remedy(f"Find out why {sender} did that: a person, a script, a time limit?"),
        Remedy("If it belongs to the launcher, look at which rank ended first: this one was taken down because of it"),
    ]

"""What a scheduler, a container runtime or a memory daemon says it did, weighed against how the process ended."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ftforensics.causes.ending import (
    SIGKILL,
    SIGTERM,
    ended_badly,
    fits_in_time,
    is_own,
    is_unseen,
    notices,
    rank_of,
    seconds_before_end,
    senders,
    signal_of,
    strength,
    weaker,
)
from ftforensics.causes.sizes import time_text
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death, NoticeMatch, SentMatch, Tie
from ftforensics.model.diagnosis import Confidence
from ftforensics.model.notice import Notice

# Slurm's KillWait is 30 s, docker stop waits 10 s, a pod 30 s; sites and users set more.
_GRACE = 120.0


class Statement(msgspec.Struct, frozen=True):
    """notice: the one that says it best; confidence: that it is why this process ended."""

    notice: Notice
    confidence: Confidence
    supports: list[Cite]
    against: list[Cite]


def statement(
    death: Death, authorities: tuple[str, ...], *kinds: str, endings: tuple[int, ...] = (SIGKILL, SIGTERM)
) -> Statement | None:
    """The best statement of these kinds about this process. endings: signals that it explains; a program that handles
    the first of them may also end with a status of its own, which is then likely at most."""
    if not ended_badly(death):
        return None
    number = signal_of(death)
    if number is not None and number not in endings:
        return None
    said = [_weigh(death, one) for one in notices(death, authorities, *kinds)]
    return min(said, key=lambda one: rank_of(one.confidence), default=None)


def _weigh(death: Death, found: NoticeMatch) -> Statement:
    against = [*found.match.against, *named_by_kernel(death), *_other_senders(death, found.notice)]
    confidence = strength(found.match.tie, against)
    timely = fits_in_time(death, found.notice.moment, _GRACE)
    before = seconds_before_end(death, found.notice.moment)
    if before is None and found.notice.pid is None and found.notice.group is None:
        # It is about the whole job, and a process of it may have ended long before, for a reason of its own.
        confidence = weaker(confidence, Confidence.LIKELY)
    if timely is False and before is not None:
        when = f"{time_text(-before)} after the end" if before < 0 else f"{time_text(before)} before the end"
        against.append(Cite(found.notice.authority, found.notice.cite.locator, f"that was {when}"))
        confidence = weaker(confidence, Confidence.POSSIBLE)
    elif before is not None and before < -(death.when.accuracy + found.notice.moment.accuracy):
        # Said within the slack of two clocks, but afterwards: perhaps only what the end led to.
        confidence = weaker(confidence, Confidence.LIKELY)
    number = signal_of(death)
    if found.notice.kind == "killed" and found.notice.signal not in (None, number) and number is not None:
        # Asked to end, and then ended by another signal: by whom is not said.
        confidence = weaker(confidence, Confidence.LIKELY)
    if number is None:
        # Not seen, or ended with a status of its own: a handler for SIGTERM does that, and so does a plain failure.
        confidence = weaker(confidence, Confidence.LIKELY if timely and not is_unseen(death) else Confidence.POSSIBLE)
    supports = [found.notice.cite, *found.match.why, *death.ending]
    return Statement(found.notice, confidence, supports, against)


# Decisions to end what a process belongs to, whoever then sends the signals.
_DECISIONS = (
    "time-limit", "deadline", "preempted", "requeued", "cancelled", "node-failed", "evicted", "stopped", "killed",
)  # fmt: skip


def decisions(death: Death) -> list[NoticeMatch]:
    """Statements that something decided to end this process, its job or its container, at a fitting time."""
    return [
        one
        for one in death.notices
        if one.notice.kind in _DECISIONS
        and one.match.tie is not Tie.WEAK
        and fits_in_time(death, one.notice.moment, _GRACE) is not False
    ]


def has_said(death: Death, authority: str, *kinds: str) -> bool:
    """Is there a statement of one of these kinds, tied to this process better than weakly?"""
    return any(one.match.tie is not Tie.WEAK for one in notices(death, (authority,), *kinds))


def named_by_kernel(death: Death) -> list[Cite]:
    """The kernel's own record that it killed this process for want of memory."""
    return [one.cite for one in death.oom if one.match.tie in (Tie.EXACT, Tie.TEXT) and not one.kill.line.forgeable]


def _other_senders(death: Death, notice: Notice) -> Iterator[Cite]:
    """A traced sender that is not known to act for this authority."""
    for sent in senders(death):
        if (
            sent.match.tie is not Tie.WEAK
            and not acts_for(sent.sent.sender_comm, notice.authority)
            and not is_own(death, sent)
        ):
            yield sent.cite


# Who sends for whom. Names as the kernel shows them, cut at 15 bytes.
_AGENTS = (
    ("earlyoom", "earlyoom"),
    ("systemd-oomd", "systemd-oomd"),
    ("raylet", "ray"),
    ("slurmstepd", "slurm"),
    ("slurmd", "slurm"),
    ("containerd-shim", "kubernetes"),
    ("containerd-shim", "docker"),
    ("containerd", "kubernetes"),
    ("dockerd", "docker"),
    ("runc", "docker"),
    ("runc", "kubernetes"),
    ("crun", "kubernetes"),
    ("conmon", "kubernetes"),
    ("kubelet", "kubernetes"),
    ("systemd", "systemd"),
)


def acts_for(comm: str, authority: str) -> bool:
    """Is a sender of this name an agent of this authority?"""
    return any(authority == whose and (comm == name or _is_shim(comm, name)) for name, whose in _AGENTS)


def _is_shim(comm: str, name: str) -> bool:
    # "containerd-shim-runc-v2", and runc's threads "runc:[2:INIT]".
    return name in ("containerd-shim", "runc") and comm.startswith(name)


def daemon(death: Death, name: str) -> SentMatch | None:
    """The traced signal of a daemon that sends for nothing but want of memory. Anybody may take its name, so this is
    likely at most."""
    return next((sent for sent in senders(death) if sent.sent.sender_comm == name and not is_own(death, sent)), None)

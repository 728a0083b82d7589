"""The launcher ended this process; the reason lies elsewhere.

## What it means

When one process of a job fails, its launcher ends the others: torchrun with SIGTERM and, 30 seconds later, SIGKILL;
DeepSpeed, Lightning and `mp.spawn` with either. The launcher does the same when it is told to end itself. This process
did nothing wrong, and its exit status of -15 or -9 says nothing about the first failure.

## How it is told apart

It is proven when the kernel names the launcher as the sender of the signal that ended the process: traced by
`ftforensics run`, or noted by the recorder in the process together with the wait status that fits. It is likely when
the launcher's log says that it ended this pid with that signal, or when the recorder noted the launcher's SIGTERM and
SIGKILL came later. A launcher that lists all its pids, the dead one among them (DeepSpeed), does not say of any that it
was still alive: such a line counts only where another process died first. A kernel record that this very process was
killed for want of memory outweighs the launcher's words.

## What to do

1. Look for the process that failed first: the report names it when it is in the input.
2. When no process failed before, look at who ended the launcher: a scheduler, a person, a lost connection.

## Seen in the field

- "exitcode: -15" for seven of eight ranks; the eighth one has the reason.
- Dozens of "forcefully exiting via SIGKILL" after a checkpoint that failed on one rank.

## References

- PyTorch documentation, "Error Propagation" and "torchrun"; DeepSpeed's launcher/launch.py
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import decisions, named_by_kernel, statement
from ftforensics.causes.ending import (
    SI_TKILL,
    SI_USER,
    SIGKILL,
    SIGTERM,
    asked_to_end,
    best_tied,
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
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death, NoticeMatch, SignalMatch
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.signals import signal_name

KIND = Kind.KILLER
_SENT = (1, 2, 3, 9, 15)  # what launchers send


def check_death(death: Death) -> Iterator[Finding]:
    number = signal_of(death)
    if death.alive or (number is not None and number not in _SENT) or (number is None and not is_unseen(death)):
        return
    # When the whole job was ended, its launcher only passed that on.
    upstream = [one.notice.cite for one in decisions(death) if not _is_step_end(one)]
    against = [*named_by_kernel(death), *upstream]
    traced = [one for one in senders(death) if one.sender_role == "launcher"]
    noted = _noted(death)
    if traced:
        best = best_tied(traced)
        against = [*best.match.against, *against]
        confidence = strength(best.match.tie, against)
        confidence = weaker(confidence, Confidence.POSSIBLE) if upstream else confidence
        yield _finding(death, confidence, sender_text(best), best.sent.signal, [best.cite, *best.match.why], against)
    elif noted is not None:
        confidence = Confidence.PROVEN
        # Between a noted SIGTERM and a SIGKILL somebody else may have come; a wait status settles that.
        kernels = noted.signal.code in (SI_USER, SI_TKILL)
        if noted.signal.number != number or not kernels or against or only_the_ring_says(death):
            confidence = Confidence.LIKELY
        if upstream or (against and number == SIGKILL):
            confidence = weaker(confidence, Confidence.POSSIBLE)
        pid = noted.signal.sender.pid if noted.signal.sender else None
        who = process_text(noted.sender_comm, pid)
        yield _finding(death, confidence, who, noted.signal.number, [noted.cite], against)
    elif death.ended_by:
        yield _by_log(death, number, against)
    elif (said := statement(death, ("slurm",), "stopped")) is not None:
        # srun ends a step when one of its tasks has failed: all tasks are meant, the one that failed too.
        confidence = weaker(said.confidence, Confidence.LIKELY if death.role == "collateral" else Confidence.POSSIBLE)
        why = f" ({said.notice.reason})" if said.notice.reason else ""
        yield _finding(death, confidence, f"Slurm{why}", number or SIGTERM, said.supports, [*said.against, *upstream])


def _is_step_end(found: NoticeMatch) -> bool:
    """srun's own words that it ends a step."""
    return found.notice.authority == "slurm" and found.notice.kind == "stopped"


def _noted(death: Death) -> SignalMatch | None:
    """The launcher's signal that the recorder saw: the one that ended it, or a SIGTERM that a SIGKILL followed."""
    last = last_signal(death)
    if last is not None:
        return last if last.sender_role == "launcher" else None
    asked = [one for one in asked_to_end(death) if one.sender_role == "launcher"]
    return asked[-1] if asked and signal_of(death) in (None, SIGKILL) else None


def _by_log(death: Death, number: int | None, against: list[Cite]) -> Finding:
    said = next((one for one in death.ended_by if one.signal in (None, number)), death.ended_by[0])
    # Asked to end by SIGTERM and then killed: by the launcher that lost patience, or by somebody else before that.
    fits = said.signal is None or said.signal == number
    confidence = Confidence.LIKELY if fits and number is not None and not against else Confidence.POSSIBLE
    sent = said.signal if said.signal is not None else number or SIGTERM
    return _finding(death, confidence, said.by, sent, [one.cite for one in death.ended_by], against)


def _finding(
    death: Death, confidence: Confidence, who: str, number: int, supports: list[Cite], against: list[Cite]
) -> Finding:
    return Finding(
        cause="launcher-teardown",
        confidence=confidence,
        summary=f"Ended by its launcher, {who}, with {signal_name(number)}; the reason lies elsewhere.",
        supports=[*supports, *death.ending],
        against=against,
        remedies=[
            Remedy("Look at the process that failed first: this one was taken down because of it"),
            Remedy("If none failed before, find out who ended the launcher: a scheduler, a person, a lost connection"),
        ],
    )

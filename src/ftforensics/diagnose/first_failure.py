"""The order of the deaths of one attempt, and whether it can be said which one was first.

Several processes may have failed on their own. The first of them is the root where something puts it before every
other one: a clock that both share (beyond its error), or the order of their tracebacks in one log. A launcher's word
for "first" is an opinion: torchrun compares the time at which it noticed a signal's death with the time that an
exception carries, in whole seconds. It decides only between a signal that nobody sends politely and a bare status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ftforensics.causes.ending import FAULTS, ended_badly, signal_of
from ftforensics.causes.raised import own_exception
from ftforensics.causes.registry import Kind, find_cause
from ftforensics.diagnose.clocks import is_before, seconds_between
from ftforensics.diagnose.judge import Judged
from ftforensics.diagnose.roles import BYSTANDER, SIGKILL, Relations, consequence, sent_politely, significance
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding
from ftforensics.model.moment import Moment

MOST_COMPARED = 64  # of ten thousand ranks that failed alike


class Order(msgspec.Struct, frozen=True):
    """judged: the first failure first, consequences last; root: it, when that is decided; rivals: own failures of which
    one was first, the first of `judged` among them, when it is not."""

    judged: list[Judged]
    root: Judged | None = None
    rivals: list[Judged] = []


def in_order(judged: Sequence[Judged]) -> Order:
    relations = Relations([one.death for one in judged])
    marked = [
        msgspec.structs.replace(
            one,
            consequence=consequence(one.death, one.weighed.best, relations),
            significance=significance(one.death, one.weighed.best, relations),
        )
        for one in judged
    ]
    if any(one.significance < BYSTANDER for one in marked):
        # Bystanders only where there is nothing else.
        marked = [one for one in marked if one.significance < BYSTANDER]
    # Every clock-bearing death needs the same clock to be compared by.
    wall = any(began_to_fail(one.death).realtime is not None for one in marked)
    explained = any(is_killed_for_memory(one) for one in marked)
    log = _log_of_most(marked)
    ordered = sorted(marked, key=lambda one: _precedence(one, wall, explained, log))
    if not ordered or ordered[0].consequence is not None or not ended_badly(ordered[0].death):
        return Order(ordered)
    first = ordered[0]
    rivals = [one for one in ordered[1:] if _competes(one, first) and not _comes_before(first, one, explained)]
    return Order(ordered, rivals=[first, *_earliest(rivals, explained)]) if rivals else Order(ordered, first)


def _earliest(rivals: Sequence[Judged], explained: bool) -> Sequence[Judged]:
    """Without those that another rival surely preceded: of several equal ones `first` is any, and knows not all."""
    some = rivals[:MOST_COMPARED]
    kept = [
        one for one in rivals if not any(_comes_before(other, one, explained) for other in some if other is not one)
    ]
    return kept or rivals


def is_alike(one: Judged, other: Judged) -> bool:
    """Did they fail in the same way? Then which was first changes nothing about the cause."""
    a, b = one.weighed.best, other.weighed.best
    if a is None or b is None or a.cause != b.cause or signal_of(one.death) != signal_of(other.death):
        return False
    raised, theirs = own_exception(one.death), own_exception(other.death)
    if raised is None or theirs is None:
        return raised is theirs and one.death.code == other.death.code
    return raised.raised.type == theirs.raised.type


def began_to_fail(death: Death) -> Moment:
    """When what ended it began, as far as it is known, else when it was gone: a process that leaves a record, frees its
    memory or joins its threads on the way out may be gone after one that failed because of it."""
    known = death.failed.monotonic is not None or death.failed.realtime is not None
    return death.failed if known else death.when


def is_killed_for_memory(judged: Judged) -> bool:
    best = judged.weighed.best
    return best is not None and best.confidence is not Confidence.POSSIBLE and is_memory_killer(best)


def is_memory_killer(finding: Finding) -> bool:
    cause = find_cause(finding.cause)
    return cause is not None and cause.family == "memory" and cause.kind is Kind.KILLER


def is_taken_along(judged: Judged) -> bool:
    """A member of a group kill dies with the chosen one, which is the root."""
    best = judged.weighed.best
    return best is not None and best.cause == "oom-group-kill"


def _competes(one: Judged, first: Judged) -> bool:
    """Could it have been the first failure as well? Not what followed from another, and not what matters less."""
    if one.consequence is not None or one.significance > first.significance:
        return False
    if is_taken_along(one) or not ended_badly(one.death):
        return False
    return sent_politely(first.death, first.weighed.best) or not sent_politely(one.death, one.weighed.best)


def _comes_before(first: Judged, other: Judged, explained: bool) -> bool:
    """Does anything put `first` before `other`?"""
    one, two = first.death, other.death
    began, theirs = began_to_fail(one), began_to_fail(two)
    if seconds_between(began, theirs) is not None:
        return is_before(began, theirs)
    if explained and is_killed_for_memory(first) and not is_killed_for_memory(other):
        return True  # the kernel explains it, and nothing explains the other
    if _ends_unseen(two) and not _ends_unseen(one):
        return True
    lines, others = _lines(one), _lines(two)
    if lines and others:
        # Of two files nothing says when their lines were written.
        shared = lines.keys() & others.keys()
        return bool(shared) and all(lines[path] < others[path] for path in shared)
    hard = signal_of(one) in (*FAULTS, SIGKILL)
    # A rank that ends with a status and without a word of its own is what torchrun's ranks do when a peer is gone.
    return one.first and not two.first and (hard or bool(lines)) and signal_of(two) is None


def _lines(death: Death) -> dict[str | None, int]:
    """Where its own exception stands: the line in each log that has it."""
    own = [seen.line for seen in death.exceptions if not seen.ignored and not seen.peer_lost]
    return {line.path: line.number for line in own}


def _log_of_most(judged: Sequence[Judged]) -> str | None:
    """Of several logs the one in which most of their exceptions stand in one order."""
    found = Counter(path for one in judged if one.consequence is None for path in _lines(one.death))
    return max(found, key=lambda path: (found[path], path or ""), default=None)


def _precedence(
    judged: Judged, wall: bool, explained: bool, log: str | None
) -> tuple[bool, bool, int, bool, bool, bool, float, bool, float, bool, int]:
    death, best, line = judged.death, judged.weighed.best, _lines(judged.death).get(log)
    began = began_to_fail(death)
    time = began.realtime if wall else began.monotonic
    return (
        not ended_badly(death),  # it lives, or ended well
        judged.consequence is not None,
        judged.significance,
        sent_politely(death, best),
        is_taken_along(judged),
        time is None and _ends_unseen(death) and (best is None or best.confidence is Confidence.POSSIBLE),
        time if time is not None else float("inf"),
        # Of two SIGKILLs the one that the kernel explains has the better claim, whichever the launcher noticed first.
        explained and death.signal == SIGKILL and not is_killed_for_memory(judged),
        line if line is not None else float("inf"),
        not death.first,
        list(Confidence).index(best.confidence) if best is not None else len(Confidence),
    )


def _ends_unseen(death: Death) -> bool:
    return death.signal is None and death.code is None

"""Whose are the exceptions and last words that stand in a log?

A label names the rank, torchrun's summary quotes a rank's traceback, a prefix may hold the writer's pid. What names
nobody belongs to the only process that can have written it; where several can, it is kept with each of them as
something that it may have raised (`unowned`), which is a lead and no evidence.
So is one within whose last line the log ends: it may go on to say that another process was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ftforensics.diagnose.joining.draft import Draft, Drafts
from ftforensics.model.basics import Cite
from ftforensics.model.launcher import ExceptionSeen, LauncherLog, NativeText, ProcessDied

MOST_UNOWNED = 8
_STATUS = 1  # of an exception that nobody catches (Doc/library/sys.rst, sys.excepthook)
_USAGE = 2  # of argparse and click, behind a usage message
# What a process may still print a traceback before: it gave up by itself, or was asked to.
_MAY_RAISE = (None, 1, 2, 3, 15)


def add_texts(drafts: Drafts, log: LauncherLog, name: str, died: Sequence[ProcessDied]) -> None:
    """name: of the log, as `Draft.told_by` has it; died: its lines that tell of an end."""
    nameless = []
    for event in log.events:
        if isinstance(event, ExceptionSeen):
            owners = _named(drafts, event, name)
            if event.cut and not event.peer_lost:
                for draft in owners:
                    draft.unowned.append(event)
                continue
            for draft in owners:
                draft.exceptions.append(event)
                _end_by(draft, event, log)
            if not owners and event.rank is None and event.local_rank is None and not event.ignored:
                nameless.append(event)
    native = [event for event in log.events if isinstance(event, NativeText)]
    if not nameless and all(event.rank is not None for event in native):
        # Each rank has a log of its own then: to look at every process for every log would take for ever.
        for rank in {event.rank for event in native if event.rank is not None}:
            give_native([draft for draft in drafts.of_rank(rank) if _may_be_of(draft, name)], log)
        return
    able = [draft for draft in drafts if _may_be_of(draft, name)]
    give_native(able, log)
    if nameless:
        unclaimed = _unclaimed(able, nameless)
        for status in (_STATUS, _USAGE):
            _share(able, [event for event in unclaimed if status_of(event) == status], died, status)


def _end_by(draft: Draft, event: ExceptionSeen, log: LauncherLog) -> None:
    """Of a process that its launcher was about to end along with all others nobody says how it ended; its own
    exception, which torch's hook prints when nothing caught it, does."""
    named = draft.ended_by and all(said.everybody for said in draft.ended_by)
    if draft.open and named and not draft.observed and event.rank is not None and not event.ignored:
        draft.code, draft.presumed = status_of(event), True
        draft.ending.append(
            Cite("launcher", f"{event.line.path or log.path or 'log'}:{event.line.number}", event.line.text)
        )


def status_of(event: ExceptionSeen) -> int:
    """With which status does a process end that raises this and catches nothing? parsers.launcher_usage makes the
    SystemExit of a usage message; Python itself prints nothing for one."""
    return _USAGE if event.type == "SystemExit" else _STATUS


def _may_be_of(draft: Draft, name: str) -> bool:
    return not draft.told_by or name in draft.told_by


def _named(drafts: Drafts, event: ExceptionSeen, name: str) -> list[Draft]:
    if event.rank is not None:
        # DeepSpeed's launcher names its processes by local rank alone; on the first node the two are the same number.
        local = [draft for draft in drafts.of_local_rank(event.rank) if draft.rank is None]
        return drafts.of_rank(event.rank) or (local if len(local) == 1 else [])
    if event.local_rank is not None:
        local = [draft for draft in drafts.of_local_rank(event.local_rank) if name in draft.told_by]
        return local if len(local) == 1 else []
    if event.line.writer is not None:
        return drafts.of_pid(event.line.writer)[:1]
    return []


def _unclaimed(able: Iterable[Draft], nameless: Sequence[ExceptionSeen]) -> list[ExceptionSeen]:
    """Without those that some process recorded itself: the log only says them again."""
    recorded = {_what(link.type, link.message) for draft in able if draft.raised for link in draft.raised.exceptions}
    return [event for event in nameless if _what(event.type, event.message) not in recorded]


def _what(kind: str, message: str) -> tuple[str, str]:
    """A log has the first line of a message, and types of builtins without their module."""
    return kind.rpartition(".")[2], message.partition("\n")[0][:200].strip()


def _share(able: Sequence[Draft], nameless: Sequence[ExceptionSeen], died: Sequence[ProcessDied], status: int) -> None:
    """As far as they stand before the line that tells of its process's end: a launcher raises its own behind that."""
    ended = [one for one in able if one.signal is None and one.code not in (None, 0) and not one.worker]
    ended = [one for one in ended if not one.direct] or ended  # a launcher hands its child's failure on
    raisers = [one for one in ended if one.code == status and not one.exceptions and one.raised is None]
    if not raisers:
        return
    before = _told(raisers, died)
    if before is None:
        return
    nameless = [event for event in nameless if event.line.number < before]
    own = [event for event in nameless if not event.peer_lost]
    if len(raisers) == 1 and len(ended) == 1:
        # Others that were asked to end may have printed what they lost; what they raised themselves they would not.
        alone = not any(one is not ended[0] and one.signal in _MAY_RAISE and not one.worker for one in able)
        raisers[0].exceptions += nameless if alone else own
    elif own and _each_its_own(own, nameless, len(raisers)):
        for draft, event in zip(raisers, own, strict=False):
            draft.exceptions.append(event)
    else:
        for draft in raisers:
            draft.unowned += own[-MOST_UNOWNED:]


def _told(raisers: Sequence[Draft], died: Sequence[ProcessDied]) -> float | None:
    """Number of the first line that tells of their end. A supervisor that saw it itself needs none."""
    pids = {pid for one in raisers for pid in (one.pid, *one.nspid)}
    told = [end.line.number for end in died if end.pid is None or end.pid in pids]
    if told:
        return min(told)
    return float("inf") if all(one.watched for one in raisers) else None


def _each_its_own(own: Sequence[ExceptionSeen], nameless: Sequence[ExceptionSeen], count: int) -> bool:
    """Every process printed the same, once, and none with its name."""
    return len(own) == len(nameless) == count and len({(event.type, event.message) for event in own}) == 1


# --- native code's last words -----------------------------------------------------------------------------------------


def give_native(able: Iterable[Draft], log: LauncherLog) -> None:
    """A text of native code belongs to the rank of its prefix, else to the only process that it can be of."""
    texts = [event for event in log.events if isinstance(event, NativeText)]
    if not texts:
        return
    by_end: dict[int | None, list[Draft]] = {}
    for draft in able:
        by_end.setdefault(draft.signal, []).append(draft)
    by_rank: dict[int | None, list[Draft]] = {}
    for draft in able:
        by_rank.setdefault(draft.rank, []).append(draft)
    for event in texts:
        ends_in = {"worker-fault": (7, 8, 11)}.get(event.kind, (6,))
        if event.rank is not None:
            fitting = [draft for draft in by_rank.get(event.rank, []) if draft.signal in ends_in]
        elif sum(len(by_end.get(signal, [])) for signal in ends_in) == 1:
            fitting = [draft for signal in ends_in for draft in by_end.get(signal, [])]
        else:
            continue
        if len(fitting) == 1:
            fitting[0].texts.append(event)

"""Which death began it, and which are its consequences.

A consequence is told by what somebody says: the launcher that it ended this process, a process's own exception that
another one went away, a parent's status after its child's. Only where nobody says anything does time decide, and only
as far as the clocks allow: `roots` names one process, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.causes.ending import line_cite
from ftforensics.causes.raised import left_by, own_exception
from ftforensics.causes.registry import Kind, find_cause
from ftforensics.diagnose.clocks import is_before, seconds_between
from ftforensics.diagnose.joining.family import may_be_near
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding

SIGKILL, SIGTERM, SIGPIPE = 9, 15, 13
_POLITE = (1, 2, SIGTERM)
NEAR = 60.0  # seconds before the command's end in which a process that nobody knows may have to do with it
# How much a death can have to do with the job's end, by what is known of the process.
MEMBER, STRANGER, COMMAND, BYSTANDER = range(4)


class Relations:
    """Who of these deaths is whose child, looked up rather than searched: a job may have 10,000 ranks."""

    def __init__(self, deaths: Sequence[Death]) -> None:
        self._deaths = deaths
        self._not_ended = [death for death in deaths if not death.ended_by][:2]
        self._children: dict[int, list[Death]] = {}
        for death in deaths:
            for pid in {death.worker_of, death.ppid} - {None}:
                self._children.setdefault(pid, []).append(death)  # type: ignore[arg-type]
        self._below: dict[str | None, list[Death]] = {}  # by the `run` that saw them: below its command
        for death in deaths:
            if not death.direct:
                self._below.setdefault(death.run, []).append(death)
        self._by_pid = {pid: death for death in deaths for pid in (death.pid, *death.host_pids) if pid is not None}
        self._strays = [death for death in deaths if death.worker and death.worker_of is None]
        self.command = next((death for death in deaths if death.direct), None)

    def others(self, death: Death) -> bool:
        return len(self._deaths) > 1 or any(other is not death for other in self._deaths)

    def another_first(self, death: Death) -> bool:
        """Is there a process that no launcher claims to have ended?"""
        return any(other is not death for other in self._not_ended)

    def children(self, parent: Death) -> Iterator[Death]:
        """Those that it waited for. A data worker that only a text names: whoever exits after it waited for it. The
        command waited for everybody that its own `run` saw, and that no `run` did."""
        if parent.pid is None:
            return
        if parent.direct:
            for run in dict.fromkeys((parent.run, None)):
                yield from (child for child in self._below.get(run, ()) if child is not parent)
            return
        for pid in dict.fromkeys((parent.pid, *parent.host_pids)):
            yield from (
                child for child in self._children.get(pid, ()) if child is not parent and may_be_near(child, parent)
            )
        if not parent.worker:
            yield from (child for child in self._strays if child is not parent and may_be_near(child, parent))

    def followed(self, parent: Death) -> Death | None:
        """The child for whose sake this process ended with its status, if it did. Of several that fit the last one: a
        script goes on after the others."""
        fitting = (child for child in self.children(parent) if may_follow(parent, child))
        return max(fitting, key=lambda child: (child.when.monotonic or 0.0, child.when.realtime or 0.0), default=None)

    def was_ignored(self, child: Death) -> bool:
        """Did its parent go on without it, and end later of itself or for another one's sake? Not so a launcher, which
        answers for all its ranks."""
        parent = self._by_pid.get(child.ppid) if child.ppid is not None else None
        if parent is None or parent is child or not is_before(child.when, parent.when) or parent.code is None:
            return False
        if is_rank_of(child, parent) or not may_be_near(child, parent):
            return False
        if child.signal is not None and _apart(child, parent) <= NEAR:
            return False  # whoever loses a child to a signal seldom goes on for long, whatever its status
        return self.followed(parent) is not child


def is_rank_of(child: Death, parent: Death) -> bool:
    """Ranks hand their variables on: what a rank starts itself has its parent's number."""
    return child.rank is not None and child.rank != parent.rank


def may_follow(parent: Death, child: Death) -> bool:
    """May this status be the parent's word about its child's end? Not where the parent has a failure of its own to
    tell, nor where it went on and then left with a status that says nothing of the child's."""
    if is_before(parent.when, child.when):
        return False
    own = own_exception(parent)
    if own is not None and not own.peer_lost:
        return False
    if child.worker or child.worker_of == parent.pid or is_rank_of(child, parent):
        return True
    number = child.signal or 0
    said = {1, child.code, 128 + number if number else None, 256 - number if number else None}
    return parent.code in said and _apart(child, parent) <= NEAR


def _apart(child: Death, parent: Death) -> float:
    """Seconds from the child's end to the parent's; 0 where no clock tells."""
    apart = seconds_between(child.when, parent.when)
    return apart[0] if apart is not None else 0.0


def consequence(death: Death, best: Finding | None, relations: Relations) -> Cite | None:
    """What says that this process ended because another one had; None: nothing does."""
    before = left_by(death)
    if before is not None:
        return before.cites[0] if before.peer_lost and before.cites else None
    torn_down = best is not None and best.cause == "launcher-teardown" and best.confidence is not Confidence.POSSIBLE
    if best is not None and torn_down and relations.others(death):
        return _first(best.supports)
    if death.ended_by and death.signal in (None, SIGTERM, SIGKILL):
        alive = next((said for said in death.ended_by if not said.everybody), None)
        # Whom its launcher ended was alive, whoever else is known: the first failure may be on another node.
        if alive is not None or (relations.another_first(death) and not _failed_before(death, best)):
            return (alive or death.ended_by[0]).cite
    if waited_in_vain(best) and death.behind:
        return _first(death.behind[0].cites)
    lost = says_only_peer_lost(death)
    if lost is not None:
        return lost
    if death.signal is None and death.code not in (None, 0):
        return _after_child(relations.followed(death))
    if death.signal is None or death.signal == SIGKILL:
        return None
    # A shell or launcher that ends in its child's way: the child was first. Nobody ends itself by SIGKILL so.
    return _after_child(
        next(
            (
                child
                for child in relations.children(death)
                if child.signal == death.signal and is_before(child.when, death.when)
            ),
            None,
        )
    )


def _failed_before(death: Death, best: Finding | None) -> bool:
    """Of one that its launcher names along with all others, the dead one too: does anything say that it was it?"""
    own = own_exception(death)
    if own is not None and not own.peer_lost:
        return True
    cause = find_cause(best.cause) if best is not None and best.confidence is not Confidence.POSSIBLE else None
    return cause is not None and cause.family == "memory" and cause.kind is Kind.KILLER


def waited_in_vain(best: Finding | None) -> bool:
    """Did its watchdog end it because others had not come to a collective?"""
    return best is not None and best.cause == "nccl-watchdog-abort" and best.confidence is not Confidence.POSSIBLE


def _after_child(child: Death | None) -> Cite | None:
    if child is None:
        return None
    who = f"pid {child.pid}" if child.pid is not None else f"rank {child.rank}" if child.rank is not None else "one"
    said = _first(child.ending)
    return Cite(said.source, said.locator, f"its child, {who}, had ended before: {said.text}"[:300])


def says_only_peer_lost(death: Death) -> Cite | None:
    """All that this process itself said at its end is that another one went away. What a signal ended that nobody sends
    politely has a failure of its own, whatever it had said before."""
    if death.signal not in (None, *_POLITE):
        return None
    own = own_exception(death)
    if own is not None:
        # By the first failure in the chain: who loses its peers while it cleans up after an error has its own.
        return own.cites[0] if own.peer_lost and own.cites else None
    if death.raised is not None and death.raised.peer_lost and death.raised.exceptions:
        last = death.raised.exceptions[0]
        return Cite("exception", death.raised_path or "exceptions[0]", f"{last.type}: {last.message}"[:300])
    if death.exceptions and all(seen.peer_lost for seen in death.exceptions):
        return line_cite(death.exceptions[-1].line)
    return None


def _first(cites: Sequence[Cite]) -> Cite:
    return cites[0] if cites else Cite("case", "", "")


def with_roles(deaths: Sequence[Death]) -> list[Death]:
    """`role` as far as it can be told before any cause has spoken: "root" when there is only one that is nobody's
    consequence, else "unknown" for those that compete."""
    relations = Relations(deaths)
    consequences = [consequence(death, None, relations) is not None for death in deaths]
    single = consequences.count(False) == 1
    return [
        msgspec.structs.replace(death, role="collateral" if follows else "root" if single else "unknown")
        for death, follows in zip(deaths, consequences, strict=True)
    ]


def significance(death: Death, best: Finding | None, relations: Relations) -> int:
    """A job also starts greps that find nothing and helpers that it stops itself. MEMBER: a process that recorded,
    has a rank, is named by a launcher, or was taken by a memory killer; STRANGER: another one that a signal ended near
    the job's end; COMMAND: the command itself with a status; BYSTANDER: the rest, and whatever its parent went on
    without."""
    known = death.crash or death.ring or death.rank is not None or death.worker or death.first or death.ended_by
    cause = find_cause(best.cause) if best is not None and best.confidence is not Confidence.POSSIBLE else None
    if cause is not None and cause.family == "memory":
        return MEMBER
    if relations.was_ignored(death):
        return BYSTANDER
    if known or not death.watched or (death.direct and death.signal is not None):
        return MEMBER
    if death.raised is not None and not death.direct:
        return STRANGER
    if death.direct:
        return COMMAND
    if death.signal in (None, SIGPIPE):
        return BYSTANDER
    command = relations.command
    apart = seconds_between(death.when, command.when) if command is not None else None
    return STRANGER if apart is None or apart[0] <= NEAR else BYSTANDER


def sent_politely(death: Death, best: Finding | None) -> bool:
    """Ended by a signal that launchers and people send to what is to stop: not the first failure where there is one."""
    cause = find_cause(best.cause) if best else None
    if death.signal in _POLITE and not death.first and (cause is None or cause.kind is Kind.RESIDUAL):
        return True  # nobody says who sent it; what ended otherwise has the better claim to have been first
    return cause is not None and cause.family == "ended" and cause.kind is Kind.KILLER and death.signal != SIGKILL

"""Which death began it, and which are its consequences."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.registry import Kind, find_cause
from ftforensics.diagnose.clocks import is_before, seconds_between
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding

SIGKILL, SIGTERM, SIGPIPE = 9, 15, 13
_POLITE = (1, 2, SIGTERM)
NEAR = 60.0  # seconds before the command's end in which a process that nobody knows may have to do with it
# How much a death can have to do with the job's end, by what is known of the process.
MEMBER, STRANGER, COMMAND, BYSTANDER = range(4)


def is_consequence(death: Death, best: Finding | None, deaths: Sequence[Death]) -> bool:
    """Did this process end because another one had? By what a launcher, a parent or its own exception says."""
    others = [other for other in deaths if other is not death]
    if not others:
        return False
    if best is not None and best.cause == "launcher-teardown" and best.confidence is not Confidence.POSSIBLE:
        return True
    if death.ended_by and death.signal in (None, SIGTERM, SIGKILL):
        return any(not other.ended_by for other in others)
    if death.exceptions and all(seen.peer_lost for seen in death.exceptions):
        return True
    if death.signal is None and death.code not in (None, 0):
        return any(_is_child(other, death) and not is_before(death.when, other.when) for other in others)
    # A shell or launcher that ends in its child's way: the child was first. Nobody ends itself by SIGKILL so.
    return death.signal != SIGKILL and any(
        _is_child(other, death) and other.signal == death.signal and is_before(other.when, death.when)
        for other in others
    )


def with_roles(deaths: Sequence[Death]) -> list[Death]:
    """`role` as far as it can be told before any cause has spoken: "root" when there is only one that is nobody's
    consequence, else "unknown" for those that compete."""
    consequences = [is_consequence(death, None, deaths) for death in deaths]
    single = consequences.count(False) == 1
    return [
        msgspec.structs.replace(death, role="collateral" if consequence else "root" if single else "unknown")
        for death, consequence in zip(deaths, consequences, strict=True)
    ]


def significance(death: Death, best: Finding | None, deaths: Sequence[Death]) -> int:
    """A job also starts greps that find nothing and helpers that it stops itself. MEMBER: a process that recorded,
    has a rank, is named by a launcher, or was taken by a memory killer; STRANGER: another one that a signal ended near
    the job's end; COMMAND: the command itself with a status; BYSTANDER: the rest."""
    known = death.crash or death.ring or death.rank is not None or death.worker or death.first or death.ended_by
    if known or not death.watched or (death.direct and death.signal is not None):
        return MEMBER
    cause = find_cause(best.cause) if best is not None and best.confidence is not Confidence.POSSIBLE else None
    if cause is not None and cause.family == "memory":
        return MEMBER
    if death.direct:
        return COMMAND
    if death.signal in (None, SIGPIPE):
        return BYSTANDER
    command = next((other for other in deaths if other.direct), None)
    apart = seconds_between(death.when, command.when) if command is not None else None
    return STRANGER if apart is None or apart[0] <= NEAR else BYSTANDER


def sent_politely(death: Death, best: Finding | None) -> bool:
    """Ended by a signal that launchers and people send to what is to stop: not the first failure where there is one."""
    cause = find_cause(best.cause) if best else None
    if death.signal in _POLITE and not death.first and (cause is None or cause.kind is Kind.RESIDUAL):
        return True  # nobody says who sent it; what ended otherwise has the better claim to have been first
    return cause is not None and cause.family == "ended" and cause.kind is Kind.KILLER and death.signal != SIGKILL


def _is_child(child: Death, parent: Death) -> bool:
    if parent.pid is None:
        return False
    if child.worker_of == parent.pid or child.ppid == parent.pid or child.ppid in parent.host_pids:
        return True
    # A data worker that only a text names: whoever exits after it waited for it.
    return (parent.direct and not child.direct) or (child.worker and child.worker_of is None and not parent.worker)

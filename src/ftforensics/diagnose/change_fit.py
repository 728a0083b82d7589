"""What changed since the last good run, held against a finding.

A change is no evidence of a fault by itself: runs differ in many things. It strengthens a finding that is possible
already, and only one that nothing speaks against and that lacks nothing: where the stack is not known a change does not
tell where the process died. Its cause says which changes fit it (`CHANGES`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ftforensics.causes.registry import Cause
from ftforensics.model.basics import Cite
from ftforensics.model.diagnosis import Confidence, Finding
from ftforensics.model.ledger import Change, Changes


def strengthened(cause: Cause, finding: Finding, changes: Changes | None) -> Finding:
    """The finding with the changes that fit it cited; likely instead of possible where nothing speaks against it and
    nothing is missing.

    Only changes since a run of the same job that ended well count: of another program one cannot say that it would
    have met the fault."""
    if changes is None or not changes.good or not changes.same_job or finding.confidence is Confidence.RULED_OUT:
        return finding
    fitting = list(_fitting(cause, changes))
    if not fitting:
        return finding
    lifted = finding.confidence is Confidence.POSSIBLE and not finding.against and not finding.unknown
    return msgspec.structs.replace(
        finding,
        confidence=Confidence.LIKELY if lifted else finding.confidence,
        supports=[*finding.supports, *(_cite(change, changes) for change in fitting)],
    )


def _fitting(cause: Cause, changes: Changes) -> Iterator[Change]:
    for change in changes.items:
        if any(_fits(pattern, change) for pattern in cause.changes):
            yield change


def _fits(pattern: str, change: Change) -> bool:
    """ "driver" fits every change of that kind, "package:nvidia-*" those whose name begins so."""
    kind, colon, name = pattern.partition(":")
    if kind != change.kind:
        return False
    return not colon or name == change.name or (name.endswith("*") and change.name.startswith(name[:-1]))


def _cite(change: Change, changes: Changes) -> Cite:
    before, after = change.before or "(not there)", change.after or "(gone)"
    text = f"{change.name} {before} -> {after} since the last run that ended well"
    return Cite("ledger", f"{changes.run}: {change.name}", text)

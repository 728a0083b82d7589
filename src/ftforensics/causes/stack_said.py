"""What a death's own output and its own record say about the installed software."""

from __future__ import annotations

import msgspec

from ftforensics.causes.kept import kept
from ftforensics.causes.raised import own_exception
from ftforensics.model.death import Death
from ftforensics.model.launcher import ExceptionSeen, StackText, TextLine
from ftforensics.parsers.stack_message import in_exception


@kept
def stack_said(death: Death) -> list[StackText]:
    """The log's texts, and the recorded exception's where the log holds none of its kind. Line 0: of a record."""
    own = own_exception(death) if death.raised is not None else None
    if own is None or not own.recorded or own.thread is not None or own.peer_lost:
        return death.stack_texts
    failure = own.failure
    line = TextLine(f"{failure.type}: {failure.message}"[:300], 0, path=death.raised_path)
    event = ExceptionSeen(line, failure.type, failure.message, death.rank)
    known = {text.kind for text in death.stack_texts}
    found = [text for text in in_exception(event) if text.kind not in known]
    # The record's line stands for all of its lines.
    return [*death.stack_texts, *(msgspec.structs.replace(text, line=line, form="exception") for text in found)]

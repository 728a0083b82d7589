"""Takes secrets out of what was read in a job's output: the report quotes it, and is shown around.

By the rules of our own records (`capture.redact`). Names by which processes are joined (hosts, ranks, ids) stay as they
are, and so does the file itself.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ftforensics.capture.redact import redact
from ftforensics.model.exception import RaisedFrame
from ftforensics.model.launcher import ExceptionSeen, LauncherEvent

# A secret may stand in them; the other texts are words of a fixed list, or what processes are known by.
_FIELDS = ("command", "file", "message", "program")

_redacted = lru_cache(maxsize=8192)(redact)  # ranks say the same thing


def without_secrets(event: LauncherEvent) -> LauncherEvent:
    """The same object when there is none in it."""
    changed: dict[str, object] = {}
    text = _redacted(event.line.text)
    if text != event.line.text:
        changed["line"] = msgspec.structs.replace(event.line, text=text)
    for name in _FIELDS:
        value = getattr(event, name, None)
        if value and (shown := _redacted(value)) != value:
            changed[name] = shown
    if isinstance(event, ExceptionSeen) and any(_is_secret(frame) for frame in event.frames):
        changed["frames"] = [msgspec.structs.replace(one, file=_redacted(one.file or "")) for one in event.frames]
    return msgspec.structs.replace(event, **changed) if changed else event


def _is_secret(frame: RaisedFrame) -> bool:
    return frame.file is not None and _redacted(frame.file) != frame.file

"""A whole traceback in one text, as traceback.format_exc() writes it: the exceptions with their frames."""

from __future__ import annotations

import re

from ftforensics.model.exception import Raised, RaisedFrame

_HEADING = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(.{0,2000})", line (\d{1,9})(?:, in (.{0,500}))?$')
_LAST = re.compile(r"((?:[A-Za-z_<][\w<>]*\.)*[A-Za-z_]\w*)(?::(?: (.*)|$)|$)")
# traceback.py, _cause_message and _context_message
_LINKS = {
    "The above exception was the direct cause of the following exception:": "cause",
    "During handling of the above exception, another exception occurred:": "context",
}
_MOST_TEXT = 1 << 20
_MOST_EXCEPTIONS = 16
_OUTER, _INNER = 40, 160  # frames that are kept
_MESSAGE = 4000


def read_traceback(text: str) -> list[Raised]:
    """What ended the process first, then what it came from; empty for a text that is no traceback. Frames between the
    40 outermost and the 160 innermost ones are left out, of longer chains the ones in their middle."""
    found: list[Raised] = []
    link: str | None = None
    frames: list[RaisedFrame] | None = None  # None: outside of a traceback's lines
    message: list[str] | None = None  # of the last of `found`, while it goes on
    for line in text[:_MOST_TEXT].split("\n"):
        line = line.rstrip("\r")
        if line in _LINKS or line == _HEADING:
            if message is not None:
                found[-1] = _finished(found[-1], message)
            message, frames = None, [] if line == _HEADING else None
            link = _LINKS.get(line, link)
            continue
        if message is not None:
            message.append(line)
            continue
        if frames is None:
            continue
        frame = _FRAME.match(line)
        if frame:
            frames.append(RaisedFrame(frame[1], int(frame[2]), frame[3]))
            if len(frames) > 2 * (_OUTER + _INNER):
                del frames[_OUTER:-_INNER]
            continue
        last = _LAST.match(line) if not line.startswith(" ") else None
        if last is None:
            continue
        if found:
            found[-1] = Raised(found[-1].type, found[-1].message, found[-1].frames, link)
        kept = frames if len(frames) <= _OUTER + _INNER else frames[:_OUTER] + frames[-_INNER:]
        found.append(Raised(last[1][:300], "", kept))
        message, frames, link = [last[2] or ""], None, None
        if len(found) > _MOST_EXCEPTIONS:
            del found[_MOST_EXCEPTIONS // 2]
    if message is not None:
        found[-1] = _finished(found[-1], message)
    return found[::-1]


def _finished(raised: Raised, message: list[str]) -> Raised:
    return Raised(raised.type, "\n".join(message).rstrip()[:_MESSAGE], raised.frames, raised.link)

"""Reads `evidence.jsonl`, what `ftforensics run` saw, whole or cut at any byte.

The supervisor appends one line an event, so a file that ends in the middle of one has lost that one only. A line that
cannot be used costs itself and is told as a Gap; nothing here raises on bad input.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.run import (
    Counted,
    Died,
    Ended,
    Forwarded,
    KernelLine,
    Orphan,
    Refused,
    RunEvent,
    RunEvidence,
    Sent,
    Started,
)

SCHEMA = "ftforensics.evidence/1"
SCHEMA_FAMILY = "ftforensics.evidence/"
LONGEST_LINE = 16 << 20
MOST_LINES = 200_000
MOST_GAPS = 200  # then they are only counted

_Timed = TypeVar("_Timed", Died, Sent, Counted, Forwarded)
_DECODER: msgspec.json.Decoder[RunEvent] = msgspec.json.Decoder(RunEvent)


class _Type(msgspec.Struct, frozen=True):
    type: str


_TYPE = msgspec.json.Decoder(_Type)
_KNOWN = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (Started, Died, Sent, KernelLine, Counted, Forwarded, Orphan, Refused, Ended)
)


def read_run_evidence(data: bytes, path: str | None = None) -> RunEvidence:
    """Every event in `data`. path: for the cites."""
    lines = data.rstrip(b"\0").split(b"\n")
    cut = bool(lines.pop())
    found: list[RunEvent] = []
    gaps: list[Gap] = []
    lost = 0
    for number, line in enumerate(lines[:MOST_LINES], 1):
        if not line.strip():
            continue
        event = _event(line)
        if not isinstance(event, str):
            found.append(event)
        elif event:
            lost += 1
            if lost <= MOST_GAPS:
                gaps.append(Gap("run", f"line {number} of the evidence {event}"))
    if lost > MOST_GAPS:
        gaps.append(Gap("run", f"{lost - MOST_GAPS} more lines of the evidence could not be used"))
    if len(lines) > MOST_LINES:
        gaps.append(Gap("run", f"the evidence has {len(lines)} lines; only the first {MOST_LINES} were read"))
    if cut:
        gaps.append(Gap("run", f"the evidence breaks off in line {len(lines) + 1}"))
    started = next((event for event in found if isinstance(event, Started)), None)
    if started is not None and started.schema != SCHEMA:
        gaps.append(Gap("run", f"the evidence has schema {started.schema[:60]!r}, this version reads {SCHEMA!r}"))
    elif started is None:
        gaps.append(Gap("run", "the first line of the evidence is lost: who ran what, where and when is not known"))
    return RunEvidence(
        path=path,
        started=started,
        died=_in_time([event for event in found if isinstance(event, Died)]),
        sent=_in_time([event for event in found if isinstance(event, Sent)]),
        kernel=[event for event in found if isinstance(event, KernelLine)],
        counted=_in_time([event for event in found if isinstance(event, Counted)]),
        forwarded=_in_time([event for event in found if isinstance(event, Forwarded)]),
        orphans=[event for event in found if isinstance(event, Orphan)],
        ended=next((event for event in reversed(found) if isinstance(event, Ended)), None),
        gaps=[*(event.gap for event in found if isinstance(event, Refused)), *gaps],
    )


def looks_like_run_evidence(head: bytes) -> bool:
    """Whether a file that begins like this is one. The first line may have been lost to a full disk."""
    line = head.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and (f'"{SCHEMA_FAMILY}'.encode() in line or b'"type": "started"' in line)


def _event(line: bytes) -> RunEvent | str:
    """The event; else what is wrong with the line, "" when it is a kind that this version does not know."""
    if len(line) > LONGEST_LINE:
        return f"is too long ({len(line)} bytes)"
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if _TYPE.decode(line).type not in _KNOWN:
                return ""  # of a later version, which may add kinds
        return f"is not usable: {str(error)[:120]}"


def _in_time(events: list[_Timed]) -> list[_Timed]:
    return sorted(events, key=lambda event: event.at)

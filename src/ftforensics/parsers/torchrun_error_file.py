"""torchrun's own error files, which `@record` writes: $TORCHELASTIC_ERROR_FILE, `error.json` or `reply.json`.

1.9 on       {"message": {"message": "RuntimeError: ...", "extraInfo": {"py_callstack": ..., "timestamp": "179601"}}}
             and "errorCode" beside it, where an agent handed on the file of its rank (1.9: the call stack is a list)
schedulers   {"message": "RuntimeError: ...", "timestamp": 12}, pytorch pull request 57084
"""

from __future__ import annotations

import re

import msgspec

from ftforensics.capture.redact import redact
from ftforensics.model.crash import Job, Time
from ftforensics.model.exception import ExceptionRecord, Raised
from ftforensics.parsers.output_path import output_of
from ftforensics.parsers.peer_lost import says_peer_lost
from ftforensics.parsers.traceback_text import read_traceback

HOOK = "torchrun error file"
_NAMES = re.compile(r"(?:^|/)(?:error|reply)\.json$")
_MESSAGE = re.compile(r"([A-Za-z_]\w{0,200})(?:: (.*))?\Z", re.DOTALL)
_LONGEST = 4000
_SECONDS = re.compile(r"\d{1,12}")


class _Extra(msgspec.Struct):
    py_callstack: str | list[str] = ""
    timestamp: str | int | float | None = None


class _Inner(msgspec.Struct):
    message: str
    extraInfo: _Extra | None = None
    errorCode: int | None = None


class _Nested(msgspec.Struct):
    message: _Inner


class _Flat(msgspec.Struct):
    message: str
    timestamp: str | int | float | None = None
    errorCode: int | None = None


def read_torchrun_error_file(data: bytes, path: str | None = None) -> ExceptionRecord | None:
    """None: another JSON document. path: tells attempt and local rank (".../attempt_0/1/error.json"). Without
    exceptions where the file tells of none: one of a death by a signal, which others write for torchrun's summary.

    The time is in whole seconds, when the file was written. Secrets are redacted, as in our own records.
    """
    message, stack, stamp = "", "", None
    try:
        nested = msgspec.json.decode(data, type=_Nested).message
        extra = nested.extraInfo or _Extra()
        message, stamp = nested.message, extra.timestamp
        stack = extra.py_callstack if isinstance(extra.py_callstack, str) else ""
        known = nested.extraInfo is not None or nested.errorCode is not None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            flat = msgspec.json.decode(data, type=_Flat)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        message, stamp = flat.message, flat.timestamp
        known = stamp is not None or flat.errorCode is not None
    if not known and _NAMES.search(path or "") is None:
        return None
    exceptions = [_redacted(one) for one in _exceptions(message, stack)]
    first = exceptions[0] if exceptions else None
    where = output_of(path) if path is not None else None
    seconds = _seconds(stamp)
    return ExceptionRecord(
        time=Time(realtime=seconds) if seconds is not None else None,
        job=Job(rank=where.rank, local_rank=where.local_rank) if where is not None else None,
        hook=HOOK,
        exceptions=exceptions,
        peer_lost=says_peer_lost(first.type, first.message, _innermost(first)) if first is not None else None,
        attempt=where.attempt if where is not None else None,
    )


def _exceptions(message: str, stack: str) -> list[Raised]:
    said = _MESSAGE.match(message)
    raised = read_traceback(stack) if stack.startswith("Traceback (most recent call last):") else []
    if said is None or (stack and not raised and not stack.startswith("  File ")):
        return raised
    name, words = said[1], (said[2] or "")[:_LONGEST]
    # The message is whole, the type in the call stack has its module.
    if raised and raised[0].type.rpartition(".")[2] == name:
        return [msgspec.structs.replace(raised[0], message=words), *raised[1:]]
    if raised or (said[2] is None and not name.endswith(("Error", "Exception", "Interrupt", "Exit"))):
        return raised
    return [Raised(name, words)]


def _innermost(raised: Raised) -> str | None:
    return raised.frames[-1].file if raised.frames else None


def _redacted(raised: Raised) -> Raised:
    return msgspec.structs.replace(raised, message=redact(raised.message))


def _seconds(stamp: str | int | float | None) -> float | None:
    if isinstance(stamp, str):
        return float(stamp) if _SECONDS.fullmatch(stamp) else None
    return float(stamp) if stamp is not None and 0 < stamp < 1e12 else None

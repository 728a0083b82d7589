"""Reads `*.exception.json`, whole or cut: what capture.exceptions wrote before the process ended.

One top-level member a line, and of `exceptions` one exception a line, so that a file that a full disk cut still has all
its complete lines. Nothing here raises on bad input: a member or an exception that cannot be used is left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.exception import ExceptionRecord, Raised

MARK = b'"ftforensics.exception/'
SCHEMA_FAMILY = "ftforensics.exception/"
SCHEMA_VERSION = 1
LONGEST = 8 * 1024 * 1024  # bytes; the longest that is written has 0.2 MiB
_SOURCE = "exception record"
_LIST = b'"exceptions": ['


def looks_like_an_exception_record(head: bytes) -> bool:
    """head: the first bytes of a file."""
    return MARK in head[:4096]


def read_exception_record(data: bytes) -> ExceptionRecord | Gap:
    """Every complete member of a file that may be cut at any byte. A Gap when there is none, or of a newer schema."""
    data = data[:LONGEST].rstrip(b"\0").lstrip()  # a journal replayed after power loss leaves zeros at the end
    members = _whole(data)
    if members is None:
        members = _by_line(data)
    if not members:
        return Gap(_SOURCE, "the file is empty" if not data else "it holds no complete member")
    schema = _decoded(members.get("schema", msgspec.Raw(b"null")), str)
    if schema is None or not schema.startswith(SCHEMA_FAMILY):
        return Gap(_SOURCE, "it is none of ours")
    if schema != f"{SCHEMA_FAMILY}{SCHEMA_VERSION}":
        return Gap(_SOURCE, f"it says {schema[:60]!r}, this version reads {SCHEMA_VERSION}: upgrade ftforensics")
    values: dict[str, Any] = {}
    for field in _fields():
        raw = members.get(field.encode_name)
        if raw is not None:
            value = _exceptions(raw) if field.name == "exceptions" else _decoded(raw, field.type)
            if value is not None:
                values[field.name] = value
    return ExceptionRecord(**values)


@cache
def _fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    """Asked for once: that evaluates every annotation and takes longer than to read a record."""
    return msgspec.structs.fields(ExceptionRecord)


def _whole(data: bytes) -> dict[str, msgspec.Raw] | None:
    found: dict[str, msgspec.Raw] | None = _decoded(data, dict[str, msgspec.Raw])
    return found


def _by_line(data: bytes) -> dict[str, msgspec.Raw]:
    """The members of a cut file. What stands behind the last newline is not complete."""
    members: dict[str, msgspec.Raw] = {}
    listed: list[bytes] | None = None  # lines of `exceptions`, while we are in it
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1]):
        text = line.strip()
        if number == 0:
            text = text.removeprefix(b"{")
        if listed is not None and text.startswith(b"{"):
            listed.append(text.removesuffix(b","))
        elif text == _LIST:
            listed = []
        elif listed is not None:
            members["exceptions"] = msgspec.Raw(b"[" + b",".join(listed) + b"]")
            listed = None
        else:
            for name, raw in (_whole(b"{" + text.removesuffix(b",") + b"}") or {}).items():
                members.setdefault(name, raw)
    if listed:
        members["exceptions"] = msgspec.Raw(b"[" + b",".join(listed) + b"]")
    return members


def _exceptions(raw: msgspec.Raw) -> list[Raised]:
    parts = _decoded(raw, list[msgspec.Raw]) or []
    return [one for part in parts if (one := _decoded(part, Raised)) is not None]


def _decoded(raw: msgspec.Raw | bytes, kind: Any) -> Any:
    """None for what does not fit."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None

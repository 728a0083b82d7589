"""Docker (and Podman): `docker inspect`, `docker events` as text and as JSON.

OOMKilled comes from the runtime's event: it may be lost, and a killed child of the container's first process counts as
well. So false excludes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ftforensics.model.basics import Cite
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.parsers.launcher_line import moment_of
from ftforensics.parsers.notice_line import NoticeLine, document_cite

AUTHORITY = "docker"


class _State(msgspec.Struct):
    Status: str | None = None
    Running: bool = False
    OOMKilled: bool = False
    ExitCode: int | None = None
    Error: str | None = None
    FinishedAt: str | None = None


class _Inspected(msgspec.Struct):
    Id: str
    State: _State
    Name: str | None = None


class _Attributes(msgspec.Struct):
    name: str | None = None
    signal: str | int | None = None
    exitCode: str | int | None = None


class _Actor(msgspec.Struct):
    ID: str | None = None
    Attributes: _Attributes = msgspec.field(default_factory=_Attributes)


class _Event(msgspec.Struct):
    Type: str | None = None
    Action: str | None = None
    status: str | None = None
    id: str | None = None
    Actor: _Actor | None = None
    time: int | None = None
    timeNano: int | None = None


_EVENT = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(?:Z|[+-]\d\d:?\d\d)) container (?P<action>oom|kill|die|stop)"
    r" (?P<id>[0-9a-f]{12,64})(?: \((?P<attributes>.{0,3000})\))?\s*$"
)
_SIGNAL = re.compile(r"(?:^|[ (])signal=(\d{1,2})\b")
_CODE = re.compile(r"(?:^|[ (])exitCode=(\d{1,3})\b")


def read_docker(text: str, path: str | None = None) -> list[Notice]:
    stripped = text.lstrip()
    if stripped[:1] == "[" or (stripped[:1] == "{" and '"State"' in stripped):
        inspected = list(_of_inspect(stripped, path))
        if inspected:
            return inspected
    notices: list[Notice] = []
    for number, line in enumerate(text.split("\n"), 1):
        notices.extend(_of_event_line(line, number, path))
    return notices


def _of_inspect(text: str, path: str | None) -> Iterator[Notice]:
    try:
        documents = (
            msgspec.json.decode(text, type=list[msgspec.Raw]) if text[0] == "[" else [msgspec.Raw(text.encode())]
        )
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    for at, raw in enumerate(documents):
        try:
            container = msgspec.json.decode(raw, type=_Inspected)
        except msgspec.DecodeError:
            continue
        state = container.State
        if state.Running and not state.OOMKilled:
            continue
        name = (container.Name or "").lstrip("/") or container.Id[:12]
        said = f"{name}: OOMKilled {str(state.OOMKilled).lower()}, ExitCode {state.ExitCode}"
        yield Notice(
            AUTHORITY,
            "oom" if state.OOMKilled else "state",
            document_cite(AUTHORITY, path, f"[{at}].State", said),
            moment=moment_of(state.FinishedAt or ""),
            unit=container.Id,
            state=state.Status,
            reason=state.Error or None,
            exit_code=state.ExitCode if not state.Running else None,
        )


def _of_event_line(line: str, number: int, path: str | None) -> Iterator[Notice]:
    text = line.strip()
    if text.startswith("{"):
        if text.endswith("}"):
            yield from _of_json_event(text, number, path)
        return
    found = _EVENT.match(text[:4096])
    if found is None:
        return
    attributes = found["attributes"] or ""
    signal, code = _SIGNAL.search(attributes), _CODE.search(attributes)
    yield from _event(
        found["action"],
        found["id"],
        NoticeLine(text, number).cite(AUTHORITY, path),
        moment_of(found["at"]),
        int(signal[1]) if signal else None,
        int(code[1]) if code else None,
    )


def _of_json_event(text: str, number: int, path: str | None) -> Iterator[Notice]:
    try:
        event = msgspec.json.decode(text, type=_Event)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    if event.Type not in (None, "container"):
        return
    actor = event.Actor or _Actor()
    identity = actor.ID or event.id
    seconds = event.timeNano / 1e9 if event.timeNano else event.time
    if identity is None:
        return
    yield from _event(
        event.Action or event.status or "",
        identity,
        NoticeLine(text, number).cite(AUTHORITY, path),
        Moment(realtime=float(seconds), accuracy=1.0) if seconds else Moment(),
        _number(actor.Attributes.signal),
        _number(actor.Attributes.exitCode),
    )


def _event(
    action: str, container: str, cite: Cite, moment: Moment, signal: int | None, code: int | None
) -> Iterator[Notice]:
    """A signal that somebody had Docker send is a request to stop, as `docker stop` and `docker kill` make it."""
    kind = {"oom": "oom", "kill": "stopped", "stop": "stopped", "die": "state"}.get(action)
    if kind is not None:
        yield Notice(AUTHORITY, kind, cite, moment=moment, unit=container, signal=signal, exit_code=code, state=action)


def _number(value: str | int | None) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 6 else None
    return value

"""Files and folders that a run will need: are they there, readable, not empty, and how much room is left.

A dead network mount answers nothing, for ever: another process asks, with a deadline."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import msgspec

from ftforensics.host.host import Host, Refusal

TIMEOUT = 3.0  # seconds
_QUICK = 1.0  # seconds
_ANSWER_LIMIT = 1 << 20


class Place(msgspec.Struct, frozen=True):
    """path: absolute; kind: "folder", "file", "other", None where it is not there; existing: the nearest folder above
    that is there; free, size: bytes of the file system at `existing`; files, files_free: inodes, 0 where the file
    system does not count them; error: what refused, as the system says it, code: errno; silent: no answer in time."""

    path: str
    kind: str | None = None
    readable: bool = False
    writable: bool = False
    empty: bool | None = None
    existing: str | None = None
    size: int | None = None
    free: int | None = None
    files: int | None = None
    files_free: int | None = None
    error: str | None = None
    code: int | None = None
    silent: bool = False


def look_at(host: Host, paths: Sequence[str], timeout: float = TIMEOUT) -> list[Place]:
    """One Place for each path, in order. timeout: seconds for all of them together."""
    wanted = list(dict.fromkeys(paths))
    if not wanted:
        return []
    if not host.runs_commands:
        return [_copied(host, path) for path in paths]
    program = os.path.join(os.path.dirname(__file__), "places_child.py")
    try:
        done = host.run([sys.executable, "-I", "-S", program, *wanted], timeout, _ANSWER_LIMIT)
    except (Refusal, ValueError) as refusal:  # ValueError: an embedded NUL
        return [Place(path, error=str(refusal)) for path in paths]
    found: dict[str, Place] = {}
    for line in done.stdout.splitlines():
        try:
            place = msgspec.json.decode(line, type=Place)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        path, existing = _from_bytes(place.path), place.existing and _from_bytes(place.existing)
        found[path] = msgspec.structs.replace(place, path=path, existing=existing)
    return [found.get(path) or Place(path, silent=True) for path in paths]


def _from_bytes(text: str) -> str:
    """places_child.py writes each byte of a path as one character."""
    return os.fsdecode(text.encode("latin-1", "replace"))


def answers(host: Host, path: str) -> bool:
    """Whether a look at it comes back: a home whose server went away must not cost a verdict what is there for its
    convenience alone."""
    return not look_at(host, [path], _QUICK)[0].silent


def _copied(host: Host, path: str) -> Place:
    """Of a copied root: what its files say; room is that of another file system."""
    try:
        host.stat(path)
    except Refusal as refusal:
        return Place(path, error=refusal.reason, code=refusal.code)
    try:
        names = host.names(path)
    except Refusal:
        try:
            size = host.stat(path).st_size
        except Refusal as refusal:
            return Place(path, error=refusal.reason, code=refusal.code)
        return Place(path, kind="file", readable=True, empty=size == 0, existing=os.path.dirname(path))
    return Place(path, kind="folder", readable=True, writable=True, empty=not names, existing=path)

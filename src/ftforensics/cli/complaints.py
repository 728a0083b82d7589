"""What is wrong with a file, in one line; and of ten thousand files with the same trouble still one line."""

from __future__ import annotations

import errno
import os
import stat

from ftforensics.cli.errors import Failure, UnreadableInput
from ftforensics.cli.recognise import HEAD, HELPER_MARK, KNOWN, REPORT_MARK
from ftforensics.wire.record import NotARecord

_EACH = 2  # of one kind that are told one by one
_MOST = 20  # lines; a folder of garbage must not become a page of complaints


class Complaints:
    """Failures with the paths they are about, in order. last: the latest one; folders: those of folders."""

    def __init__(self) -> None:
        self._alike: dict[tuple[str, str], list[Failure]] = {}
        self.last: Failure | None = None
        self.folders = 0

    def add(self, path: str, failure: Failure, *, folder: bool = False) -> None:
        self.folders += folder
        stem = path.removesuffix(".json").removesuffix(".helper")
        hint = (failure.hint or "").replace(stem, "")
        self._alike.setdefault((failure.what.replace(path, ""), hint), []).append(failure)
        self.last = failure

    def lines(self, but: Failure | None = None) -> list[str]:
        """but: one that is told otherwise."""
        told: list[str] = []
        for alike in self._alike.values():
            rest = [one for one in alike if one is not but]
            if len(rest) <= _EACH:
                told += [f"{one} (left out)" for one in rest]
            else:
                told.append(f"{rest[0]} (left out), and {len(rest) - 1:,} more like it")
        if len(told) > _MOST:
            told = [*told[: _MOST - 1], f"{len(told) - _MOST + 1:,} more files have other troubles (left out)"]
        return told


def nothing_in(path: str, empty: bool) -> UnreadableInput:
    """Of a text in which nothing was known. empty: it has no line at all."""
    if empty and os.path.isfile(path) and os.stat(path).st_size < HEAD:
        hint = "the process was ended before it could write; look for another *.crash.json beside it"
        return UnreadableInput(f"{path}: the file is empty", hint=hint)
    return UnreadableInput(
        f"{path}: nothing in it is known: no launcher's, kernel's or scheduler's line about a process that ended",
        hint="give a crash record, a ring, a run folder, the job's output or a kernel log",
    )


def nothing_below(folder: str) -> UnreadableInput:
    try:
        with os.scandir(folder) as entries:
            empty = next(entries, None) is None
    except OSError:
        empty = False
    hint = "a run that ends well leaves none; a killed process cannot write one"
    return UnreadableInput(
        f"{folder}: no crash record, ring or known log in this folder",
        hint="it is empty: a run that ends well leaves nothing" if empty else hint,
    )


def no_record(path: str, head: bytes, data: bytes, reading: NotARecord) -> UnreadableInput:
    """What the file is instead, as far as it can be told."""
    return UnreadableInput(f"{path}: {_instead(head, data, reading)}", hint=_instead_hint(path, head))


def _instead(head: bytes, data: bytes, reading: NotARecord) -> str:
    if not data:
        return "the file is empty"
    if HELPER_MARK in head:
        return "this is the report of the crash reporter, not a crash record"
    if REPORT_MARK in head:
        return "this is a finished report, not a crash record"
    for magic, name in KNOWN:
        if data.startswith(magic):
            return f"not a crash record: it is {name}"
    return reading.message


def _instead_hint(path: str, head: bytes) -> str:
    if HELPER_MARK in head:
        record = path.removesuffix(".helper.json") + ".crash.json"
        return f"try {record if os.path.exists(record) else 'the *.crash.json beside it'}"
    if not head:
        return "the process was ended before it could write; look for another *.crash.json beside it"
    return 'a record begins with {"schema": "ftforensics.crash/1"'


def no_file(path: str, mode: int) -> UnreadableInput:
    """A pipe, socket or device."""
    return UnreadableInput(f"{path} is {_kind(mode)}, not a file", hint="save what it gives to a file and name that")


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
        (stat.S_ISDIR, "a folder"),
    )
    return next((name for test, name in kinds if test(mode)), "a special file")


def unreadable(path: str, error: OSError | ValueError) -> UnreadableInput:
    if isinstance(error, ValueError):
        return UnreadableInput(f"{path!r} is no path: {error}")
    hint = {
        errno.ENOENT: "give a *.crash.json or a run folder; they lie in $FTFORENSICS_DIR or ./ftforensics",
        errno.EACCES: "records are readable by their owner only; try as that user, or with sudo",
        errno.ELOOP: "its symbolic links lead nowhere",
        errno.EIO: "the disk or the network file system fails; copy the file from elsewhere",
        errno.ESTALE: "the network file system lost it; look from another machine",
    }.get(error.errno or 0)
    return UnreadableInput(f"{path}: {error.strerror or error}", hint=hint)

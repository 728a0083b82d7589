"""Answers of earlier look-ups, by build-id, in the user's cache directory.

A build-id names the content of a file, so an answer never goes stale; what may change is where symbols come from (a
debug package is installed later), hence the source is part of the key. The cache is only ever a shortcut: a file that
is missing, damaged, foreign, too large or not writable is passed over in silence and the symbol table is read again.

Layout: `<cache>/ftforensics/symbols-1/<build-id>.<source>.msgpack`, one `CachedSymbols` a file. Another layout or
another rule for choosing among aliases needs another number.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

FORMAT = "symbols-1"
FILE_LIMIT = 1 << 20  # bytes of one file: some thousand functions
FILES_LIMIT = 512  # files, and
TOTAL_LIMIT = 64 << 20  # bytes of all of them
BUILD_ID = re.compile(r"[0-9a-f]{8,128}\Z")  # it becomes a file name, and it comes from a record


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The answer for one place in the file.

    offset: from the start of the first mapping; start: the symbol's, likewise; name: mangled. The last two are None
    where no symbol stands. Offsets and not file addresses, so that an answer can be used when the file itself is gone.
    """

    offset: int
    start: int | None = None
    name: bytes | None = None


class CachedSymbols(msgspec.Struct, frozen=True, array_like=True):
    build_id: str
    source: str
    entries: list[Entry]


class SymbolCache:
    """directory: the folder of this format, made on the first write (0700). None = no cache."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    @property
    def directory(self) -> Path | None:
        return self._directory

    @classmethod
    def of_user(cls) -> SymbolCache:
        """$XDG_CACHE_HOME or ~/.cache (XDG Base Directory Specification: a relative value counts as unset)."""
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):
            home = os.path.expanduser("~")
            if not os.path.isabs(home):
                return cls(None)
            base = os.path.join(home, ".cache")
        return cls(Path(base) / "ftforensics" / FORMAT)

    def read(self, build_id: str, source: str) -> dict[int, Entry]:
        """Known answers by offset; empty when there are none that can be trusted."""
        path = self._path(build_id, source)
        content = _read_own_file(path) if path is not None else None
        if content is None:
            return {}
        try:
            known = msgspec.msgpack.decode(content, type=CachedSymbols)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}
        if (known.build_id, known.source) != (build_id, source):
            return {}
        return {entry.offset: entry for entry in known.entries}

    def write(self, build_id: str, source: str, entries: Iterable[Entry], fresh: Iterable[Entry]) -> None:
        """Keep `entries` (known before) and `fresh` ones. When both do not fit, the fresh ones alone are kept."""
        path = self._path(build_id, source)
        if path is None:
            return
        new = list(fresh)
        for chosen in ([*entries, *new], new):
            content = msgspec.msgpack.encode(CachedSymbols(build_id, source, chosen))
            if len(content) <= FILE_LIMIT:
                try:
                    _replace(path, content)
                    _prune(path.parent)
                except OSError:  # read-only or full: the next run reads the symbol table again
                    pass
                return

    def _path(self, build_id: str, source: str) -> Path | None:
        if self._directory is None or not BUILD_ID.match(build_id):
            return None
        return self._directory / f"{build_id}.{source}.msgpack"


def _read_own_file(path: Path) -> bytes | None:
    """The content, when the file and its folder are ours alone: another user's answers would end up in our report."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or not _is_ours(status) or not _is_ours(os.lstat(path.parent)):
                return None
            content = os.read(fd, FILE_LIMIT + 1)
        finally:
            os.close(fd)
    except OSError:
        return None
    return content if len(content) <= FILE_LIMIT else None


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _replace(path: Path, content: bytes) -> None:
    os.makedirs(path.parent.parent, mode=0o700, exist_ok=True)
    try:
        os.mkdir(path.parent, 0o700)
    except FileExistsError:
        if not _is_ours(os.lstat(path.parent)):
            return
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _prune(directory: Path) -> None:
    """Remove the files written longest ago, temporary ones of a killed process among them."""
    with os.scandir(directory) as found:
        files = [(entry.stat(follow_symlinks=False), entry.path) for entry in found]
    files.sort(key=lambda file: file[0].st_mtime)
    count, total = len(files), sum(status.st_size for status, _ in files)
    for status, path in files:
        if count <= FILES_LIMIT and total <= TOTAL_LIMIT:
            return
        os.unlink(path)
        count, total = count - 1, total - status.st_size

"""The JSON and YAML files that a job's command line names, as their keys and values; remembered by size and time."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.ledger import NOT_UNDERSTOOD, ConfigFile, Setting
from ftforensics.parsers.command_line import config_files
from ftforensics.parsers.config_file import settings

LARGEST = 1 << 20  # bytes; a tokenizer's vocabulary is a JSON file too
MOST = 8


class _Seen(msgspec.Struct, frozen=True):
    """What was read of a file of this size and time."""

    size: int
    mtime: int
    settings: list[Setting]


def read_config_files(host: Host, argv: Sequence[str], cwd: str | None) -> list[ConfigFile]:
    """argv: not redacted, it is only searched for names. A file that cannot be read or is too large is left out."""
    found = []
    for path in config_files(argv, cwd, MOST):
        read = _read(host, path)
        if read is not None:
            found.append(ConfigFile(path, read))
    return found


def _read(host: Host, path: str) -> list[Setting] | None:
    name = f"config-{hashlib.sha256(os.fsencode(path)).hexdigest()[:24]}.json"
    try:
        status = host.stat(path)
        if status.st_size > LARGEST:
            return None
        seen = _remembered(host, name)
        if seen is not None and (seen.size, seen.mtime) == (status.st_size, status.st_mtime_ns):
            return seen.settings
        read = _settings(path, host.read_bytes(path, LARGEST))
    except Refusal:
        return None
    host.write_cache(name, msgspec.json.encode(_Seen(status.st_size, status.st_mtime_ns, read)))
    return read


def _settings(path: str, data: bytes) -> list[Setting]:
    """Of a file that is not understood (YAML that needs PyYAML, JSON with comments) at least whether it is another."""
    try:
        return settings(path, data)
    except ValueError:
        return [Setting(NOT_UNDERSTOOD, f"{len(data)} bytes, CRC {zlib.crc32(data):08X}")]


def _remembered(host: Host, name: str) -> _Seen | None:
    try:
        return msgspec.json.decode(host.read_cache(name, LARGEST), type=_Seen)
    except (Refusal, msgspec.DecodeError, UnicodeDecodeError):
        return None

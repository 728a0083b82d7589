"""The answer of `ftforensics libraries`, schema `ftforensics.libraries/1`."""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.crash import Driver, Library
from ftforensics.model.software import Software


class LoadedStack(msgspec.Struct, frozen=True):
    """What a process has, or had, loaded. record: the crash record's path, None for a process that runs now."""

    schema: str = "ftforensics.libraries/1"
    pid: int | None = None
    record: str | None = None
    libraries: list[Library] = []
    software: Software | None = None
    driver: Driver | None = None
    gaps: list[Gap] = []

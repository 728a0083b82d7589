"""Releases that are known to crash, each with its source."""

from __future__ import annotations

import msgspec


class KnownBad(msgspec.Struct, frozen=True):
    """package: as the index compares it; versions: a specifier set ("<0.63"); driver: a specifier on the driver version
    (">=580"), None: any; machine: "aarch64", None: any; module: a part of the path or function of a frame that the
    crash shows, None: it cannot be told by a frame; sure: with these versions the crash in `module` is this fault
    (otherwise it is one of several explanations); symptom, fix: one phrase each."""

    id: str
    package: str
    versions: str
    symptom: str
    fix: str
    source: str
    driver: str | None = None
    machine: str | None = None
    module: str | None = None
    sure: bool = False
    command: str | None = None


def known_bad() -> tuple[KnownBad, ...]:
    raise NotImplementedError


def matching(package: str, version: str, *, driver: str | None = None, machine: str | None = None) -> list[KnownBad]:
    """Entries for this release. One with a condition on the driver matches only where the driver is known."""
    raise NotImplementedError

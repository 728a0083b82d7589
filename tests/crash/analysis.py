"""The analyser, as the crash tests ask it: one record in, its diagnosis out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftforensics.model.diagnosis import Diagnosis


def analyze(record: Path) -> Diagnosis:
    """What `ftforensics analyze` would render."""
    from ftforensics.cli.analysis import diagnose_paths

    return diagnose_paths([str(record)])


def mechanism_of(record: Path) -> str | None:
    return analyze(record).verdict.mechanism


def one_record(folder: Path) -> Path:
    """The only record of a run; anything else fails the test."""
    (path,) = sorted(folder.rglob("*.crash.json"))
    return path

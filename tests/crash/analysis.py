"""The analyser, as the matrix asks it: one record in, the verdict's mechanism out."""

from __future__ import annotations

from pathlib import Path


def mechanism_of(record: Path) -> str | None:
    raise NotImplementedError

"""What a program left of its uncaught exceptions."""

from __future__ import annotations

from pathlib import Path

from ftforensics.model.exception import ExceptionRecord
from ftforensics.wire.exception_record import read_exception_record


def exceptions(folder: Path) -> list[ExceptionRecord]:
    """The records below a folder, by name."""
    found = [read_exception_record(path.read_bytes()) for path in sorted(folder.rglob("*.exception.json"))]
    assert all(isinstance(record, ExceptionRecord) for record in found), found
    return [record for record in found if isinstance(record, ExceptionRecord)]


def only_exception(folder: Path) -> ExceptionRecord:
    (record,) = exceptions(folder)
    return record

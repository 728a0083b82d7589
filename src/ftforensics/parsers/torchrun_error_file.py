"""torchrun's own error files, which `@record` writes: $TORCHELASTIC_ERROR_FILE, `error.json` or `reply.json`."""

from __future__ import annotations

from ftforensics.model.exception import ExceptionRecord


def read_torchrun_error_file(data: bytes, path: str | None = None) -> ExceptionRecord | None:
    """None: another JSON document. path: tells attempt and local rank (".../attempt_0/1/error.json")."""
    raise NotImplementedError

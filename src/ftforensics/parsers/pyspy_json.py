"""py-spy's `dump --native --json` (read from version 0.4.3) and what it says when it is refused."""

from __future__ import annotations

import msgspec

from ftforensics.model.helper_report import HelperFrame, HelperThread


class _Frame(msgspec.Struct):
    name: str
    filename: str
    module: str | None = None  # mapped file of a native frame; null for Python
    line: int = 0


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    thread_name: str | None = None
    os_thread_id: int | None = None


def parse(text: bytes) -> list[HelperThread]:
    """Threads in py-spy's order, frames innermost first. Raises ValueError on anything else.

    py-spy names a native function without a symbol by its address, and gives line 0 and the library as the file where
    it has no line information: these become None.
    """
    try:
        threads = msgspec.json.decode(text, type=list[_Thread])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not py-spy's JSON: {error}") from error
    return [
        HelperThread(tid=thread.os_thread_id, name=thread.thread_name, frames=[_frame(f) for f in thread.frames])
        for thread in threads
    ]


def _frame(frame: _Frame) -> HelperFrame:
    if frame.module is None:
        return HelperFrame(function=frame.name, file=frame.filename, line=frame.line or None)
    has_line = frame.line > 0
    return HelperFrame(
        function=None if frame.name.startswith("0x") else frame.name,
        file=frame.filename if has_line else None,
        line=frame.line if has_line else None,
        native=True,
        library=frame.module,
    )


def refused(stderr: bytes) -> bool:
    """Did py-spy say that it may not trace the process? ("Permission Denied: Try running again ...", and the operating
    system's own words where it passes them on.)"""
    said = stderr.lower()
    return b"permission denied" in said or b"operation not permitted" in said or b"os error 1)" in said

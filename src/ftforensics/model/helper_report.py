"""What the crash reporter, the process started at the crash, saw.

Schema `ftforensics.helper/1`, file `*.helper.json`.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Gap


class HelperFrame(msgspec.Struct, frozen=True):
    """library: path of the mapped file that a native frame lies in. The tools give no addresses."""

    function: str | None = None
    file: str | None = None
    line: int | None = None
    native: bool = False
    library: str | None = None


class HelperThread(msgspec.Struct, frozen=True):
    """One thread's stack, innermost frame first."""

    tid: int | None = None
    name: str | None = None
    frames: list[HelperFrame] = []


class HelperReport(msgspec.Struct, frozen=True):
    """record: file name of the crash record it belongs to; tool: "py-spy" or "pystack"; version: the tool's;
    gap: why there are no threads (ptrace refused, tool missing, deadline); ms: how long it took."""

    schema: str | None = None
    record: str | None = None
    pid: int | None = None
    tool: str | None = None
    version: str | None = None
    threads: list[HelperThread] = []
    gap: Gap | None = None
    ms: float | None = None

"""An uncaught Python exception as the process itself recorded it, schema `ftforensics.exception/1`.

`capture.exceptions` writes it, `wire.exception_record` reads it. It stays only where the process then ended badly.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.crash import Job, Process, Time, Tool


class RaisedFrame(msgspec.Struct, frozen=True):
    """One line of the traceback. file: absolute where Python knew it so."""

    file: str | None = None
    line: int | None = None
    function: str | None = None


class Raised(msgspec.Struct, frozen=True):
    """One exception. type: with its module, "torch.OutOfMemoryError", builtins without; message: str() of it, redacted,
    cut; frames: outermost first, as Python prints them; link: how the one that stands before it in the list came from
    it: "cause" (raise ... from), "context" (raised while it was handled), None for the first; bases: names of the
    classes that it inherits from, with their modules, nearest first, without object and BaseException; errno, filename:
    of an OSError."""

    type: str
    message: str = ""
    frames: list[RaisedFrame] = []
    link: str | None = None
    bases: list[str] = []
    errno: int | None = None
    filename: str | None = None


class ExceptionRecord(msgspec.Struct, frozen=True):
    """exceptions: what ended the process (or its thread) first, then what it came from. hook: where it was seen:
    "sys.excepthook", "threading.excepthook" (the process may have gone on), "torchrun record", "multiprocessing",
    "torchrun error file" (read from torchrun's own file, not ours). peer_lost: all that it says is that another process
    went away. thread: name of the thread that it ended, None for the main one. attempt: torchrun's restart count.
    worker_of: pid of the rank, for a DataLoader or multiprocessing worker."""

    tool: Tool | None = None
    time: Time | None = None
    process: Process | None = None
    job: Job | None = None
    hook: str | None = None
    thread: str | None = None
    exceptions: list[Raised] = []
    peer_lost: bool | None = None
    phase: str | None = None
    step: int | None = None
    attempt: int | None = None
    worker_of: int | None = None
    schema: str = "ftforensics.exception/1"

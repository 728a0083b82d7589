"""Where an uncaught Python exception passes last, and the hooks that see it there.

  sys.excepthook        what ends the main program
  threading.excepthook  what ends a thread; the process goes on
  torchrun's @record    catches what its function raises, tells torchrun, raises it again
  multiprocessing       a child prints what its run() raised and leaves; torch's mp.spawn catches it first and sends it
                        to the parent
  sys.last_value        a job that replaced sys.excepthook later (IPython, rich, Ray) need not call the hook before it;
                        the interpreter has left the exception here, and we look when the main program is over

Not seen: what the job catches and answers with sys.exit() or os._exit(), what the interpreter only reports
("Exception ignored in ..."), and what a DataLoader's or a pool's worker hands to its parent, whose exception tells it.

All hooks are C functions around the original: they leave no frame in a traceback, drop what goes wrong in ours, and
the job's own hook is called with what it would have been called with. `capture.exception_record` writes the file.
"""

from __future__ import annotations

import os
import sys
from _thread import get_native_id

from ftforensics.capture import exception_record
from ftforensics.capture.imports import Patch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType
    from typing import Any

# Threads that die by the thousand must not fill a disk; the main program's exception is always written.
_MOST_OF_THREADS = 8
_MOST = 16


class Exceptions:
    """The exceptions of one process. members: what `identity.static_members` gave the crash record."""

    def __init__(self, native: ModuleType, members: bytes) -> None:
        self.members = members
        self._native = native
        self._on = True
        self._pid = os.getpid()
        self._told: list[tuple[int, int, int]] = []
        self._of_threads = 0

    def stop(self) -> None:
        """Hooks that somebody put theirs around cannot be taken away: they do nothing from here on."""
        self._on = False

    def of_interpreter(self) -> list[Patch]:
        """sys.excepthook."""
        return self._around_hook(sys, self._uncaught)

    def of_threads(self, threading: ModuleType) -> list[Patch]:
        """threading.excepthook."""
        return self._around_hook(threading, self._ended_thread)

    def _around_hook(self, module: ModuleType, see: Callable[..., None]) -> list[Patch]:
        """`excepthook is __excepthook__` is how others ask whether anybody has a hook: code.InteractiveConsole and
        exceptiongroup, which print by themselves then. So a hook that was the original one stays it."""
        hook = getattr(module, "excepthook", None)
        if hook is None:
            return []
        wrapped = self._native.wrap_function(hook, see, None, "excepthook")
        names = ["excepthook", "__excepthook__"] if getattr(module, "__excepthook__", None) is hook else ["excepthook"]
        return [Patch(module, name, lambda: wrapped) for name in names]

    def of_processes(self, context: ModuleType) -> list[Patch]:
        """context: the module multiprocessing.context. A child's _bootstrap() catches what run() raises, and a subclass
        has its own run(), so the child's very object gets a wrapped one. _after_fork() is the last that is called
        before it, also where nothing was forked (3.10 to 3.14)."""
        process: Any = context.process

        def wrap_run() -> None:
            current = process._current_process
            if self._on and "run" not in vars(current):
                current.run = self._native.wrap_function(current.run, None, self._ended_child, "run")

        def wrapped(owner: type) -> Patch:
            before = owner._after_fork  # type: ignore[attr-defined]
            return Patch(
                owner, "_after_fork", lambda: self._native.wrap_function(before, wrap_run, None, "_after_fork")
            )

        owners = (process.BaseProcess, getattr(context, "SpawnProcess", object))
        return [wrapped(owner) for owner in owners if "_after_fork" in vars(owner)]

    def of_torchrun(self, module: ModuleType) -> list[Patch]:
        """module: torch.distributed.elastic.multiprocessing.errors.error_handler."""
        handler = module.ErrorHandler
        if not hasattr(handler, "record_exception"):
            return []
        return [
            Patch(
                handler,
                "record_exception",
                lambda: self._native.wrap_method(handler, "record_exception", self._recorded, None),
            )
        ]

    def main_is_over(self) -> None:
        """Called when the main program has ended, whoever printed why; never raises. Anybody may leave an exception in
        sys.last_value (pytest does, for a test that failed), but only one that went through the whole program has an
        outermost frame that nobody called."""
        try:
            value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
            if not self._on or not isinstance(value, BaseException):
                return
            traceback = exception_record.traceback_of(value)
            if traceback is not None and traceback.tb_frame.f_back is None and _in_main_thread():
                self._uncaught(type(value), value, traceback)
        except BaseException:
            pass  # no memory, a job that put its own in the place of os.getpid: it would be printed on its stderr

    def _uncaught(self, _kind: object, value: object, traceback: TracebackType | None, *_: object) -> None:
        if hasattr(sys, "ps1"):  # at a prompt, where the next line may be right
            return
        self._tell("sys.excepthook", value, traceback)

    def _ended_thread(self, args: Any, *_: object) -> None:
        thread = args.thread
        if args.exc_type is not SystemExit:
            name = thread.name if thread is not None else None
            self._tell("threading.excepthook", args.exc_value, args.exc_traceback, name or "unnamed")

    def _recorded(self) -> None:
        self._tell("torchrun record", sys.exc_info()[1], None)

    def _ended_child(self, value: BaseException) -> None:
        shown: BaseException | None = value
        if issubclass(type(value), SystemExit):
            shown = value.__context__ if _raised_in_spawn(value) else None
        self._tell("multiprocessing", shown, None)

    def _tell(self, hook: str, value: object, traceback: TracebackType | None, thread: str | None = None) -> None:
        if not self._on or not isinstance(value, BaseException):
            return
        if thread is None and hook == "sys.excepthook" and not _in_main_thread():
            thread = "unnamed"  # a thread that calls the hook itself
        if thread is not None:
            self._of_threads += 1
            if self._of_threads > _MOST_OF_THREADS:
                return
        else:
            # What ends the main program passes several of our hooks. To hold on to it would hold on to all that its
            # frames hold, so it is known by its address, which another one may get later: hence class and line.
            raised_at = _innermost(value)
            known = (id(value), id(type(value)), raised_at.tb_lineno if raised_at is not None else 0)
            if known in self._told or len(self._told) >= _MOST:
                return
            self._told.append(known)
        exception_record.write(
            self._native,
            self.members,
            exception_record.Ended(hook, value, traceback, thread, self._pid),
        )


def _in_main_thread() -> bool:
    return get_native_id() == os.getpid()


def _innermost(value: BaseException) -> TracebackType | None:
    at = exception_record.traceback_of(value)
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at


def _raised_in_spawn(value: BaseException) -> bool:
    """Whether torch's mp.spawn has caught what the child's function raised, and leaves (torch/multiprocessing/spawn.py,
    _wrap)."""
    at = _innermost(value)
    code = at.tb_frame.f_code if at is not None else None
    return code is not None and code.co_name == "_wrap" and code.co_filename.endswith("/multiprocessing/spawn.py")

"""Stands in for the extension and writes down how it was called: a test's program imports it before ftforensics.

For the Python side's own decisions (order, arguments, undoing). What the extension does is tested with the real one.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

module: Any = types.ModuleType("ftforensics._native")
calls: list[tuple[Any, ...]] = []
fail: dict[str, BaseException] = {}


def taking(name: str, result: object = None) -> Any:
    def call(*arguments: Any) -> object:
        calls.append((name, *arguments))
        if name in fail:
            raise fail[name]
        if name == "install" and not os.path.isdir(arguments[0]):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(arguments[0]))
        return result

    return call


FUNCTIONS = [
    "install",
    "uninstall",
    "set_python_dumper",
    "set_faulthandler_fd",
    "set_python_state",
    "set_phase",
    "set_step",
    "set_note",
    "check_thread",
    "start_watcher",
    "stop_watcher",
    "start_watcher_later",
    "configure_recorder",
    "start_recorder",
    "leave",
    "come_back",
    "after_fork_child",
]
for function in FUNCTIONS:
    setattr(module, function, taking(function))
module.check_handlers = taking("check_handlers", 0)
# Not among the calls: tests/capture/test_ledger_of_job.py sees what comes of them.
module.configure_ledger = lambda *_: None
module.end_ledger = lambda *_: None


def duplicate(fd: int, lowest: int) -> int:
    """Real, and not among the calls: what it gives is closed again."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)


module.duplicate = duplicate


def is_installed() -> bool:
    """A question, so not among the calls."""
    done = [name for name in names() if name in ("install", "uninstall") and name not in fail]
    return bool(done) and done[-1] == "install"


module.is_installed = is_installed


def wrap_method(cls: Any, name: str, before: Any, after: Any) -> Any:
    original = getattr(cls, name)

    def wrapper(*arguments: Any, **named: Any) -> Any:
        if before is not None:
            before()
        try:
            return original(*arguments, **named)
        finally:
            if after is not None:
                after()

    return wrapper


module.wrap_method = wrap_method


def wrap_function(original: Any, before: Any, raised: Any, name: str) -> Any:
    """Calls the original alone: what the hooks do is seen with the real extension, in tests/capture."""
    return lambda *arguments, **named: original(*arguments, **named)


module.wrap_function = wrap_function
module.remove_at_success = lambda _path: None
sys.modules["ftforensics._native"] = module


def names() -> list[str]:
    return [call[0] for call in calls]

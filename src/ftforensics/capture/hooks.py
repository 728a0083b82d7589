"""The places where the job could lose us without meaning to, each with a hook that brings us back.

  faulthandler.enable     takes the fault signals, and the first time the thread's alternate stack too
  extension modules       may take signal handlers when they load
  threading.Thread        a new thread has no alternate stack: its overflow would die without a word
  os.fork                 the child has one thread, and shares open files with its parent
  multiprocessing.spawn   the child starts from nothing
  multiprocessing.popen   children that this process ends itself need no flight recording
  os._exit, os.exec*      leave without exit handlers: ring and run folder would stay
  uncaught exceptions     see capture.exceptions

Hooks never raise into the job, and `remove` takes away exactly what is still ours.
"""

from __future__ import annotations

import atexit
import os
import sys

from ftforensics.capture import spawn
from ftforensics.capture.exceptions import Exceptions
from ftforensics.capture.imports import Patch, Watch, after_extension_imports
from ftforensics.capture.recorder import EndedChildren

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ftforensics.capture.dumper import Dumper

_TORCHRUN_RECORD = "torch.distributed.elastic.multiprocessing.errors.error_handler"


class Hooks:
    """All hooks of one installation."""

    def __init__(
        self,
        native: ModuleType,
        settings: spawn.Settings,
        dumper: Dumper | None,
        exceptions: Exceptions,
        leaving: Callable[[str, object], None],
        staying: Callable[[], None],
        main_over: Callable[[], None],
    ) -> None:
        """leaving: called when the process ends ("exit", with the code) or becomes another program ("exec") without
        running exit handlers; staying: when it did not become one; main_over: when the main program is over and there
        may be threads left."""
        self._native = native
        self._watch = Watch(native)
        self._patches: list[Patch] = []
        self.ended = EndedChildren(native)
        self._patches += after_extension_imports(native)
        self._watch_faulthandler()
        self.exceptions = exceptions
        self._main_over = main_over
        self._patches += exceptions.of_interpreter()
        self._watch.when_loaded("threading", "main_thread", self._hook_threads)
        self._watch.when_loaded("multiprocessing.context", "SpawnProcess", self._hook_processes)
        self._watch.when_loaded(_TORCHRUN_RECORD, "ErrorHandler", self._hook_torchrun)
        self._watch.when_loaded("multiprocessing.spawn", "get_preparation_data", self._hook_spawn)
        self._watch.when_loaded("multiprocessing.popen_fork", "Popen", self._hook_popen)
        # the other exec functions of os call these two
        for name, how in (("_exit", "exit"), ("execv", "exec"), ("execve", "exec")):
            self._patches.append(_around_leaving(name, how, leaving, staying))
        self.settings = settings
        self.dumper = dumper

    def remove(self) -> None:
        self._watch.stop()
        self.exceptions.stop()
        for patch in reversed(self._patches):
            patch.undo()
        self._patches.clear()

    def _watch_faulthandler(self) -> None:
        try:
            import faulthandler  # built into the interpreter: no file is read
        except ImportError:
            return
        native = self._native
        # Enabled before us by -X faulthandler or PYTHONFAULTHANDLER it prints to descriptor 2. When the job enabled it
        # with a file of its own there is no way to ask which, and 2 is where people look.
        native.set_faulthandler_fd(2 if faulthandler.is_enabled() else -1)
        self._patches.append(Patch(faulthandler, "enable", lambda: _enable(faulthandler.enable, native)))
        self._patches.append(Patch(faulthandler, "disable", lambda: _disable(faulthandler.disable, native)))

    def _hook_threads(self, threading: ModuleType) -> None:
        thread = threading.Thread
        native = self._native
        # _bootstrap_inner is the first method that runs on the new thread; it is private, and the same in 3.10 to 3.14.
        if hasattr(thread, "_bootstrap_inner"):
            self._patches.append(
                Patch(
                    thread,
                    "_bootstrap_inner",
                    lambda: native.wrap_method(thread, "_bootstrap_inner", native.check_thread, None),
                )
            )

        self._patches += self.exceptions.of_threads(threading)

        # Exit handlers run last in, first out, so one registered at install would run after all of the job's. threading
        # calls this when the main program is over, before it joins the threads that are left; what is registered then
        # runs after the join and before everybody else's handlers.
        global _waits_for_main
        if hasattr(threading, "_register_atexit") and not _waits_for_main:
            # there is no way back: once a process
            threading._register_atexit(_main_program_over, native, self._main_over)
            _waits_for_main = True

    def _hook_processes(self, module: ModuleType) -> None:
        self._patches += self.exceptions.of_processes(module)

    def _hook_torchrun(self, module: ModuleType) -> None:
        self._patches += self.exceptions.of_torchrun(module)

    def _hook_popen(self, module: ModuleType) -> None:
        self._patches += self.ended.watch(module)

    def _hook_spawn(self, module: ModuleType) -> None:
        original = module.get_preparation_data

        def get_preparation_data(*args: Any, **kwargs: Any) -> Any:
            data = original(*args, **kwargs)
            if isinstance(data, dict):
                data["ftforensics"] = self.settings
            return data

        get_preparation_data.__doc__ = original.__doc__
        self._patches.append(Patch(module, "get_preparation_data", lambda: get_preparation_data))


_waits_for_main = False


def _main_program_over(native: Any, main_over: Callable[[], None]) -> None:
    main_over()
    if native.is_installed():
        atexit.register(native.set_python_state, 1)


def _enable(original: Callable[..., Any], native: ModuleType) -> Callable[..., Any]:
    def enable(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        native.set_faulthandler_fd(_descriptor(args[0] if args else kwargs.get("file")))
        native.check_thread()
        native.check_handlers()
        return result

    return _dressed(enable, original)


def _disable(original: Callable[..., Any], native: ModuleType) -> Callable[..., Any]:
    def disable(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        native.set_faulthandler_fd(-1)
        native.check_handlers()
        return result

    return _dressed(disable, original)


def _around_leaving(name: str, how: str, leaving: Callable[[str, object], None], staying: Callable[[], None]) -> Patch:
    original = getattr(os, name)
    return Patch(os, name, lambda: _last_call(original, how, leaving, staying))


def _last_call(
    original: Callable[..., Any], how: str, leaving: Callable[[str, object], None], staying: Callable[[], None]
) -> Callable[..., Any]:
    def last_call(*args: Any, **kwargs: Any) -> Any:
        try:
            leaving(how, args[0] if args else kwargs.get("status"))
        except BaseException:
            pass  # no memory, a job that put its own in the place of os.getpid: it leaves all the same
        try:
            return original(*args, **kwargs)
        finally:
            staying()  # an exec that fails comes back

    return _dressed(last_call, original)


def _dressed(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    function.__doc__ = original.__doc__
    function.__module__ = original.__module__
    function.__qualname__ = original.__qualname__
    function.__wrapped__ = original  # type: ignore[attr-defined]
    return function


def _descriptor(file: Any) -> int:
    """The descriptor behind the `file` that faulthandler.enable was given; the call has succeeded, so it has one."""
    try:
        if file is None:
            file = sys.stderr
        return file if isinstance(file, int) else int(file.fileno())
    except Exception:
        return 2


class ForkHooks:
    """Registered once for the life of the process: os.register_at_fork has no way back, so they ask if we are on."""

    def __init__(self, native: ModuleType, hooks: Callable[[], Hooks | None]) -> None:
        self._native = native
        self._hooks = hooks
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    # The C thread must not exist while the process forks: Python 3.12 and later warn then, and rightly.
    def _before(self) -> None:
        if self._hooks() is not None:
            self._native.stop_watcher()

    def _in_parent(self) -> None:
        if self._hooks() is None:
            return
        # Up to 3.12 the threads have been counted by now. Later versions count after us, so the thread starts at the
        # next call of a Python function: a program that waits for its child at once is not watched meanwhile.
        if sys.version_info < (3, 13):
            self._native.start_watcher()
        else:
            self._native.start_watcher_later()

    def _in_child(self) -> None:
        hooks = self._hooks()
        if hooks is None:
            return
        hooks.ended.forget()
        if hooks.dumper is not None:
            try:
                hooks.dumper.after_fork_child()
            except OSError:
                pass  # no descriptors left: the child's dump shares its parent's offset, which the handler rewinds
        self._native.after_fork_child()

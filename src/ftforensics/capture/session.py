"""install() and uninstall(): one capture per process, and never a reason for the job to die."""

from __future__ import annotations

import atexit
import os
import sys

from ftforensics.capture import cgroup, environment, folder, identity, ledger, marks, procfs, recorder, reporter
from ftforensics.capture.dumper import Dumper
from ftforensics.capture.exceptions import Exceptions
from ftforensics.capture.hooks import ForkHooks, Hooks
from ftforensics.capture.spawn import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

HELPERS = ("auto", "none")
_TRIES = 20


class _Session:
    """What is installed in this process now."""

    def __init__(self, native: ModuleType, opened: folder.Folder, hooks: Hooks, dumper: Dumper | None) -> None:
        self.native = native
        self.folder = opened
        self.hooks = hooks
        self.dumper = dumper


_session: _Session | None = None
_silent = False
_fork_hooks: ForkHooks | None = None


def install(dir: str | os.PathLike[str] | None = None, helper: str = "auto", raw_stack: bool = False) -> None:
    """Record this process's crash, and its forked and spawned children's.

    dir: the run folder; default $FTFORENSICS_DIR, else ./ftforensics/<run id>/. helper: "auto" starts a crash reporter
    when the process dies, which adds all threads' native stacks and prints a summary; "none" does not. raw_stack: keep
    stack memory as it is, secrets included, rather than zeroing what could be data.

    Calling it again changes the settings. Wrong arguments raise TypeError or ValueError. Whatever the environment
    refuses costs one warning line on stderr, and the job goes on without capture or with less of it.
    """
    wanted = _folder_argument(dir)
    if not isinstance(helper, str):
        raise TypeError(f'install(helper=...) takes "auto" or "none", not {type(helper).__name__}')
    if helper not in HELPERS:
        raise ValueError(f'install(helper=...) takes "auto" or "none", not {helper!r}')
    if not isinstance(raw_stack, bool):
        raise TypeError(f"install(raw_stack=...) takes True or False, not {type(raw_stack).__name__}")
    refused = _unsupported()
    if refused:
        _warn(f"capture is off: {refused}")
        return
    try:
        _install(wanted, helper, raw_stack)
    except Exception as error:  # whatever it was, a training run must not end because its black box could not start
        _warn(f"capture is off: {_reason(error)}")


def install_unasked() -> None:
    """install() with its defaults in a process whose program did not ask for it (`ftforensics run`). Not a word is said
    on its stderr: somebody may parse that."""
    global _silent
    if _session is not None or _unsupported():
        return
    _silent = True
    try:
        _install(None, "auto", False)
    except Exception:
        pass
    finally:
        _silent = False


def uninstall() -> None:
    """Give every signal, hook and descriptor back and remove the run folder if nothing was recorded in it."""
    global _session
    session = _session
    if session is None:
        return
    _session = None
    marks.attach(None)
    session.hooks.remove()
    try:
        session.native.configure_ledger(b"", b"")
        session.native.uninstall()
    except Exception as error:
        _warn(f"uninstall: {_reason(error)}")
    if session.dumper is not None:
        session.dumper.close()
    session.folder.remove_if_empty()


def _install(wanted: str | None, helper: str, raw_stack: bool) -> None:
    global _session, _fork_hooks
    from ftforensics import _native

    native: Any = _native
    again = _session
    if again is None and native.is_installed():
        _warn("capture is on already, by another interpreter of this process")
        return
    opened = folder.open_folder(wanted, os.environ)
    dumper = again.dumper if again is not None else _dumper()
    try:
        opened, members = _configure(native, opened, wanted, helper, raw_stack)
        if again is None and dumper is not None:
            dumper.hand_over(native)
            # register() has put faulthandler's own small alternate stack on this thread
            native.check_thread()
    except BaseException:
        if again is None and dumper is not None:
            dumper.close()
        opened.remove_if_empty()
        raise
    if opened.note:
        _warn(opened.note)
    settings = Settings(opened.path, helper, raw_stack)
    if again is not None:
        again.hooks.settings = settings
        again.hooks.exceptions.members = members
        if again.folder.path != opened.path:
            _start_recorder(native)  # moves the ring
            again.folder.remove_if_empty()
            again.folder = opened
        return
    hooks = Hooks(
        native, settings, dumper, Exceptions(native, members), _leave_nothing, native.come_back, _main_is_over
    )
    _session = _Session(native, opened, hooks, dumper)
    if _fork_hooks is None:
        _fork_hooks = ForkHooks(native, _hooks)
        atexit.register(_at_exit)
    marks.attach(native)
    _start_recorder(native)
    refused = native.start_watcher()
    if refused:
        _warn(f"the flight recorder takes no samples: its thread cannot be started: {refused}")


def _start_recorder(native: Any) -> None:
    refused = native.start_recorder()
    if refused:
        _warn(f"the flight recorder is off, a kill will leave no trace: {refused}")


def _configure(
    native: Any, opened: folder.Folder, wanted: str | None, helper: str, raw_stack: bool
) -> tuple[folder.Folder, bytes]:
    """Hand everything to the extension. Another rank that ends just now may take the empty folder away between our
    making it and the extension's opening a file in it, so that case is tried again. Returns the folder and what
    every record says about this process."""
    environ = os.environ
    lines = (procfs.read_text("/proc/self/cgroup") or "").splitlines()
    members = identity.static_members(environ, helper, raw_stack, lines)
    for attempt in range(_TRIES):
        try:
            native.install(
                os.fsencode(opened.path),
                folder.stem(environ, os.uname().nodename).encode(),
                members,
                reporter.command("crash-reporter") if helper == "auto" else [],
                environment.reporter_environment(environ) + ledger.variables_for_children(environ, opened.path),
                reporter.command("inventory") if helper == "auto" else [],
                cgroup.memory_files(lines),
                raw_stack,
            )
            recorder.configure(native, environ, lines, opened.removable)
            ledger.configure(native, environ, helper)
            break
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise
            opened = folder.open_folder(wanted, environ)
    return opened, members


def _hooks() -> Hooks | None:
    return None if _session is None else _session.hooks


def _dumper() -> Dumper | None:
    try:
        return Dumper()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        _warn(f"records will lack Python stacks: {_reason(error)}")
        return None


def _at_exit() -> None:
    session = _session
    if session is None:
        return
    _main_is_over()
    session.native.set_python_state(1)
    # The ring stays until exit(3): what kills the process while it is taken down is of interest too.
    try:
        session.hooks.ended.leave()
        session.folder.remove_if_empty()  # with a ring in it it goes at exit(3) too
    except BaseException:
        pass  # as in Exceptions.main_is_over: the interpreter would print it on the job's stderr


def _main_is_over() -> None:
    if _session is not None:
        _session.hooks.exceptions.main_is_over()


def _leave_nothing(how: str, code: object) -> None:
    """At a status other than 0 ring and exceptions stay, which the extension sees to."""
    if _session is not None:
        status = 0
        if how == "exit" and isinstance(code, int) and -(1 << 31) <= code < 1 << 31:  # what os._exit() takes
            status = code & 0xFF
            _main_is_over()
            _session.native.end_ledger(status)
        _session.hooks.ended.leave()
        _session.native.leave(how, status)
        _session.folder.remove_if_empty()


def _folder_argument(dir: str | os.PathLike[str] | None) -> str | None:
    if dir is None:
        return None
    try:
        path = os.fspath(dir)
    except TypeError:
        raise TypeError(f"install(dir=...) takes a path, not {type(dir).__name__}") from None
    path = os.fsdecode(path)  # bytes, also from a PathLike
    if not path or "\0" in path:
        raise ValueError(f"install(dir=...) takes a path that is not empty, not {path!r}")
    return path


def _unsupported() -> str:
    """Why this platform cannot be captured, in a few words; empty when it can."""
    if sys.platform != "linux":
        return f"Linux only, this is {sys.platform}"
    if sys.implementation.name != "cpython":
        return f"CPython only, this is {sys.implementation.name}"
    if "t" in getattr(sys, "abiflags", ""):
        return "free-threaded builds of Python are not supported yet"
    if identity.glibc_version() is None:
        return "glibc only, this C library (musl?) is not supported yet"
    return ""


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _warn(text: str) -> None:
    if _silent:
        return
    try:
        sys.stderr.write(f"ftforensics: {text}\n")
    except Exception:
        pass  # stderr is None (pythonw, some daemons) or closed

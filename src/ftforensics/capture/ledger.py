"""The environment ledger's file, as seen from beside the job: where it is, and how a line is put at its end.

`begun` is written by a process outside the job, `ended` by the extension at exit(3) (csrc/ftf_ledger.c) or by `run`.
Ranks and runs append at the same time: a line is one write(2) to a file opened with O_APPEND, under a shared lock
that only compaction excludes. A line that a full disk cut short costs itself: the next one begins anew.
"""

from __future__ import annotations

import os

from ftforensics.capture import autostart, environment, spawn
from ftforensics.capture.folder import run_id
from ftforensics.capture.identity import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from ftforensics.capture.identity import Value

NAME = "ledger.jsonl"
# "0": off; an absolute path: the ledger is that file.
SWITCH = "FTFORENSICS_LEDGER"
# For the processes that we start beside the job: the run's id; the run folder, for the one that shall write `begun`.
RUN = "FTFORENSICS_LEDGER_RUN"
FOLDER = "FTFORENSICS_LEDGER_FOLDER"
# Seconds that a job has to last to be written down: then the extension starts the inventory (csrc/ftf_inventory.c).
LEAST = 2.0

SHARED, EXCLUSIVE = 1, 2  # LOCK_SH and LOCK_EX of <sys/file.h>: fcntl is not loaded inside the job
_OFF = ("0", "off", "no", "false")
_TRIES = 20
_PAUSE = 0.005  # seconds


def place(environ: Mapping[str, str]) -> str | None:
    """The ledger's path, which need not exist; None when it is switched off or there is no home for it."""
    wanted = environ.get(SWITCH, "")
    if wanted.lower() in _OFF:
        return None
    if wanted.startswith("/"):
        return wanted
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the XDG specification: relative values are to be ignored
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "ftforensics", NAME)


def keeps(environ: Mapping[str, str]) -> str | None:
    """The ledger that this process writes its run into; None when another one does, `run` above it or the local rank 0:
    one line a run and machine."""
    if environ.get(autostart.ASKED) or environment.local_rank(environ) not in (None, 0):
        return None
    return place(environ)


def configure(native: ModuleType, environ: Mapping[str, str], helper: str) -> None:
    """Have the extension write how this process ends, once its inventory process has written that it began."""
    path = None if helper == "none" or spawn.worker_of else keeps(environ)
    line = _opening("ended", run_id(environ), os.getpid()) if path else ""
    native.configure_ledger(os.fsencode(path) if path else b"", line.encode())


def variables_for_children(environ: Mapping[str, str], run_folder: str) -> list[bytes]:
    """`NAME=value` for the reporter and the inventory: where the ledger is, and what this run is called in it."""
    path = None if environ.get(autostart.ASKED) else place(environ)
    if path is None:
        return [os.fsencode(f"{SWITCH}=0")]
    found = [f"{SWITCH}={path}", f"{RUN}={run_id(environ)}"]
    if not spawn.worker_of and keeps(environ):
        found.append(f"{FOLDER}={run_folder}")
    return [os.fsencode(entry) for entry in found]


def ended_line(
    run: str,
    how: str,
    *,
    pid: int | None = None,
    signal: int | None = None,
    code: int | None = None,
    cause: str | None = None,
) -> bytes:
    """how: "ok", "signal" or "code"; pid: of the process that ended."""
    import time

    more: dict[str, Value] = {"how": how}
    if signal is not None:
        more["signal"] = signal
    if code is not None:
        more["code"] = code
    if cause is not None:
        more["cause"] = cause
    return f"{_opening('ended', run, pid)}{time.time():.3f}, {json_text(more)[1:]}\n".encode()


def ended_by_status(run: str, pid: int, status: int) -> bytes:
    """status: as waitpid(2), of process `pid`."""
    if os.WIFSIGNALED(status):
        return ended_line(run, "signal", pid=pid, signal=os.WTERMSIG(status))
    code = os.WEXITSTATUS(status)
    return ended_line(run, "code", pid=pid, code=code) if code else ended_line(run, "ok", pid=pid)


def append(path: str, line: bytes, *, make: bool = False) -> int:
    """One line, ended by a newline, at the end. make: the file and its folder too, where they are missing.

    Returns the size of the file. Raises OSError: no room, not ours, a link in its place, or busy for too long.
    """
    if make:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = open_locked(path, SHARED, make=make)
    try:
        end = os.lseek(fd, 0, os.SEEK_END)
        torn = end > 0 and os.pread(fd, 1, end - 1) != b"\n"
        os.write(fd, b"\n" + line if torn else line)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def open_locked(path: str, lock: int, *, make: bool = False) -> int:
    """A descriptor for reading and appending with that lock on it. Compaction puts another file in the name's place: a
    lock on one that has lost its name protects nothing, so it is opened anew. Raises OSError."""
    import time

    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_CREAT if make else 0)
    for _ in range(_TRIES):
        fd = os.open(path, flags, 0o600)
        try:
            found = os.fstat(fd)
            if found.st_mode & 0o170000 != 0o100000 or found.st_uid != os.geteuid():
                raise PermissionError(1, "not a file of this user's own", path)
            if _locked(fd, lock) and os.path.samestat(found, os.lstat(path)):
                return fd
        except FileNotFoundError:
            pass  # between two names
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        time.sleep(_PAUSE)
    raise BlockingIOError(11, "is being compacted", path)


def _locked(fd: int, lock: int) -> bool:
    import fcntl

    try:
        fcntl.flock(fd, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: then two may be at it, and a line may be lost
    return True


def _opening(kind: str, run: str, pid: int | None) -> str:
    """The JSON object up to the value of "at"."""
    head: dict[str, Value] = {"type": kind, "run": run, "host": os.uname().nodename, "pid": pid}
    return f'{json_text(head)[:-1]}, "at": '

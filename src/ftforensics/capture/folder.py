"""The run folder: where a launch's records go, the same for all its ranks, gone when there was nothing to record."""

from __future__ import annotations

import os

from ftforensics.capture import procfs
from ftforensics.capture.environment import local_rank, rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = "ftforensics"
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_OTHER_IDS = ("PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "PMIX_NAMESPACE")
_RANK_NAMES = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
# How often a folder is made again that ranks which end take away.
_TRIES = 20
# File names are at most 255 bytes (NAME_MAX) and the extension adds pid, start time, a counter and a suffix.
_MAX_NAME = 100


class Folder:
    """An open run folder. path: absolute. note: one sentence when it is not where it was asked for, else empty."""

    def __init__(self, path: str, removable: list[str], note: str = "") -> None:
        self.path = path
        self.note = note
        self._removable = removable  # innermost first
        self._pid = os.getpid()

    @property
    def removable(self) -> list[str]:
        """What may go when it is empty, innermost first."""
        return list(self._removable)

    def remove_if_empty(self) -> None:
        """Leave nothing behind after a run that ended well. Only the process that opened it may: a forked child that
        ends early must not pull the folder from under its parent. A folder with anything in it stays (ENOTEMPTY)."""
        if os.getpid() != self._pid:
            return
        for path in self._removable:
            try:
                os.rmdir(path)
            except OSError:
                return


def open_folder(wanted: str | None, environ: Mapping[str, str]) -> Folder:
    """Make the run folder: `wanted`, else $FTFORENSICS_DIR, else ./ftforensics/<run id> under the working directory,
    else the same under the user's state directory. An explicit folder that cannot be written falls back too, with a
    note. Raises OSError when no place can be written."""
    explicit = wanted or environ.get("FTFORENSICS_DIR", "")
    refused = ""
    if explicit:
        try:
            path = os.path.abspath(os.path.expanduser(explicit))
            return Folder(path, _make(path))
        except OSError as error:
            refused = f"{explicit}: {error.strerror}"
    identity = run_id(environ)
    last: OSError | None = None
    for root in _roots(environ, skip_working_directory=bool(explicit)):
        try:
            base = os.path.join(root, NAME)
            path = os.path.join(base, identity)
            _make(path)
        except OSError as error:
            last = error
            refused = refused or f"{error.filename or root}: {error.strerror}"
            continue
        # Any rank may take these two down: the others' records are still without a name, which does not keep rmdir
        # from succeeding, and a crash makes the folder again.
        return Folder(path, [path, base], f"{refused}; records go to {path}" if refused else "")
    raise last or OSError(refused)


def run_id(environ: Mapping[str, str]) -> str:
    """A name for this launch: the launcher's id, its start, the attempt. Equal for all ranks of one launch.

    On one node the start is the pid and start time of the agent, the process that started the ranks. Over several
    nodes the agents differ, so what all of them know takes its place: the step that Slurm numbers by itself, or
    torchrun's rendezvous port, which is drawn anew at each launch unless the user fixed it.
    """
    elastic = environ.get("TORCHELASTIC_RUN_ID", "")
    if elastic == "none":  # torchrun's literal default
        elastic = ""
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID") or ""
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or ""
    other = next((environ[name] for name in _OTHER_IDS if environ.get(name)), "")
    parts = []
    if elastic and elastic != job:
        parts.append(elastic)
    if job:
        parts.append(f"{job}.{step}" if step else job)
    elif other:
        parts.append(other)
    launched = rank(environ) is not None or local_rank(environ) is not None
    if _nodes(environ) > 1 and parts:
        if "TORCHELASTIC_RUN_ID" in environ:
            parts.append(environ.get("MASTER_PORT", ""))
    elif not (job and step and "TORCHELASTIC_RUN_ID" not in environ):
        agent = _agent(environ) if launched else os.getpid()
        parts.append(f"{agent}-{procfs.start_ticks(agent) or 0}")
    attempts = [_count(environ, "TORCHELASTIC_RESTART_COUNT"), _count(environ, "SLURM_RESTART_COUNT")]
    if any(attempts):
        parts.append("attempt" + ".".join(str(n) for n in attempts if n))
    return _file_name("-".join(part for part in parts if part))


def stem(environ: Mapping[str, str], host: str) -> str:
    """How this process's files begin: host and rank. The extension appends pid and start time."""
    name = host.partition(".")[0] or "localhost"
    number = rank(environ)
    local = local_rank(environ)
    if number is not None:
        name += f"-rank{number}"
    elif local is not None:
        name += f"-local{local}"
    return _file_name(name)


def _agent(environ: Mapping[str, str]) -> int:
    """The process that started the ranks: the nearest ancestor whose own environment has no rank in it. The parent is
    often a per-rank shell (`bash -c`, numactl's wrapper script) that carries the rank too."""
    names = [name.encode() + b"=" for name in _RANK_NAMES if name in environ]
    pid = os.getppid()
    for _ in range(16):
        block = procfs.read(f"/proc/{pid}/environ", 1 << 20)
        if not block or not any(entry.startswith(tuple(names)) for entry in block.split(b"\0")):
            return pid
        up = procfs.parent(pid)
        if not up or up == 1:
            return pid
        pid = up
    return pid


def _nodes(environ: Mapping[str, str]) -> int:
    if "TORCHELASTIC_RUN_ID" in environ:
        return _count(environ, "GROUP_WORLD_SIZE") or 1
    return _count(environ, "SLURM_STEP_NUM_NODES") or _count(environ, "SLURM_NNODES") or 1


def _count(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else 0


def _file_name(text: str) -> str:
    safe = "".join(char if char in _SAFE else "_" for char in text)[:_MAX_NAME]
    return "_" + safe[1:] if safe.startswith(".") else safe


def _roots(environ: Mapping[str, str], skip_working_directory: bool) -> Iterator[str]:
    """Where the default folder may stand, the best place first. Raises OSError when the last resort is a trap."""
    if not skip_working_directory:
        try:
            yield os.getcwd()
        except OSError:
            pass  # the working directory has been removed
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the XDG specification: relative values are to be ignored
        home = environ.get("HOME", "")
        state = os.path.join(home, ".local", "state") if home.startswith("/") else ""
    if state:
        yield state
    yield _private(private_place(environ))


def private_place(environ: Mapping[str, str]) -> str:
    """A directory of this machine's own that only this user may use; `_private` makes it."""
    temporary = environ.get("TMPDIR", "")
    return os.path.join(temporary if temporary.startswith("/") else "/tmp", f"{NAME}-{os.getuid()}")


def _private(path: str) -> str:
    """A directory of our own in a place that everybody can write to. Anybody could have made that name first, to read
    our records or to send them elsewhere by a link."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        directory = found.st_mode & 0o170000 == 0o040000
        if not directory or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(1, "belongs to somebody else", path) from None
    return path


def _make(path: str) -> list[str]:
    """Make a directory and its parents and see that files can be made in it. Returns what was made, innermost first."""
    made: list[str] = []
    for _ in range(_TRIES):
        try:
            _make_missing(path, made)
        except FileNotFoundError:
            continue  # another rank ended just now and took an empty parent away
        if os.access(path, os.W_OK | os.X_OK):
            return made
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
    raise FileNotFoundError(2, "No such file or directory", path)


def _make_missing(path: str, made: list[str]) -> None:
    missing = []
    at = path
    while not os.path.lexists(at):
        missing.append(at)
        at = os.path.dirname(at)
    if not os.path.isdir(at) and os.path.lexists(at):
        raise NotADirectoryError(20, "Not a directory", at)
    for directory in reversed(missing):
        try:
            os.mkdir(directory)
        except FileExistsError:
            continue  # another rank was faster
        if directory not in made:
            made.insert(0, directory)

"""What launchers and jobs print, as typed events. `parsers.launcher` makes them.

A launcher's guess about a cause is never an event. Pids are those of the printing process's namespace.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.exception import RaisedFrame
from ftforensics.model.moment import Moment


class TextLine(msgspec.Struct, frozen=True):
    text: str  # an excerpt, at most 300 characters
    number: int  # line of the file, from 1
    moment: Moment = Moment()
    path: str | None = None  # of the file, for the cites
    wall: float | None = None  # date and time without a zone that the line begins with, read as if in UTC
    writer: int | None = None  # pid of the process that wrote it, where its prefix or its words say
    day: float | None = None  # of a prefix that names no year: seconds since the beginning of a leap year


class ProcessDied(msgspec.Struct, frozen=True):
    """A launcher reports an end. signal: number, when a signal ended it; code: exit status; both None when it only says
    that it failed. first: the launcher calls it the first failure (its opinion). command: of the process, when named.
    worker: a DataLoader worker or the like; rank is then unknown here. one_of: pids of which it is one, where the
    launcher does not say which."""

    line: TextLine
    launcher: str  # "torchrun", "deepspeed", "dataloader", "mp.spawn", "shell", "mpi", "slurm", "python", ...
    pid: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    signal: int | None = None
    code: int | None = None
    first: bool = False
    worker: bool = False
    host: str | None = None
    command: str | None = None
    program: str | None = None  # path of the executable
    one_of: list[int] = []


class SignalledBy(msgspec.Struct, frozen=True):
    """A launcher says that it ends a process itself: that process's end is a consequence."""

    line: TextLine
    launcher: str
    pid: int
    signal: int | None = None
    also_dead: bool = False  # the launcher names every rank here, the dead one too (DeepSpeed)


class ProcessStarted(msgspec.Struct, frozen=True):
    line: TextLine
    launcher: str
    pid: int
    rank: int | None = None
    local_rank: int | None = None
    command: str | None = None


class Peer(msgspec.Struct, frozen=True):
    """Another process of the job that a text says is gone or did not answer. host: name or address; address alone says
    which machine, a port not which process."""

    rank: int | None = None
    host: str | None = None
    port: int | None = None


class AttemptBegan(msgspec.Struct, frozen=True):
    """A launcher starts the job, or starts it again, and what stands before is about an earlier attempt. restart:
    torchrun's restart count, 0 at the first; None: not said."""

    line: TextLine
    launcher: str
    restart: int | None = None


class ExceptionSeen(msgspec.Struct, frozen=True):
    """The last line of a Python traceback. peer_lost: it says that another process went away (connection closed by
    peer, NCCL remote error, broken process pool); worker_pid: of a DataLoader's report about its worker; chained: it
    was raised from the one before, or while that was handled; ignored: Python only reports it (of a destructor)."""

    line: TextLine
    type: str
    message: str = ""
    rank: int | None = None
    peer_lost: bool = False
    worker_pid: int | None = None
    file: str | None = None  # innermost frame
    file_line: int | None = None
    function: str | None = None
    chained: bool = False
    ignored: bool = False
    of_worker: bool = False  # a DataLoader hands on what its worker raised, whose traceback follows
    handling: bool = False  # chained, and raised while the one before was handled
    peers: list[Peer] = []  # of a peer_lost one: whom it names
    frames: list[RaisedFrame] = []  # outermost first; of more than 60 the 30 outermost and the 30 innermost
    uncaught: bool = False  # torch's sys.excepthook printed it: the main program was over
    cut: bool = False  # its line is the log's last and has no end: more may have stood there
    local_rank: int | None = None  # of a child whose traceback its launcher quotes (mp.spawn)
    task_pid: int | None = None  # of Ray's worker whose task raised it; who asked for the result raised it again


class NativeText(msgspec.Struct, frozen=True):
    """What native code prints before it ends: kind "cxx-exception" (type, message), "heap" (glibc's allocator),
    "assertion", "fatal-python-error" (message), "worker-fault" (torch's own handler in a worker)."""

    line: TextLine
    kind: str
    type: str | None = None
    message: str | None = None
    rank: int | None = None


class StackText(msgspec.Struct, frozen=True):
    """What CUDA, the loader or a library says about the software stack.

    kind: "cuda-error" (code: CUDA's error number; version: the driver's level as torch printed it, 12010),
    "undefined-symbol" (library, symbol), "symbol-version" (library: who wants it, symbol: "GLIBCXX_3.4.32", file:
    where it is not), "library-missing" (library), "cudnn-versions" (wanted, found), "cudnn-parts" (library: a part
    that could not be loaded or that does not fit), "nccl-progress" (how far a rank's watchdog saw its collectives
    come: sequence: the one that it waits for, enqueued, completed: the last ones; symbol: the process group), "cudnn-
    status" (symbol: another status of cuDNN's), "built-for" (library "xformers", wanted: torch it was built for,
    found: torch that is there), "openmp-twice" (libraries in `library` and `file`), "fork-after-cuda", "nccl-
    watchdog" (symbol: the collective, seconds: its timeout), "driver-versions" (NVML: the driver's library and module
    differ; found: the library's).

    form: where it stood: "exception" (last line of a Python traceback, which also ends the process unless somebody
    caught it), "what" (of an uncaught C++ exception), "warning" (a Python warning: the process went on), "line" (as the
    library itself prints it). pid: of the writer, where its line says."""

    line: TextLine
    kind: str
    code: int | None = None
    version: int | None = None
    library: str | None = None
    symbol: str | None = None
    file: str | None = None
    wanted: str | None = None
    found: str | None = None
    seconds: float | None = None
    rank: int | None = None
    pid: int | None = None
    form: str | None = None
    sequence: int | None = None  # number of a collective in its process group, the same on all ranks
    enqueued: int | None = None
    completed: int | None = None


LauncherEvent = ProcessDied | SignalledBy | ProcessStarted | ExceptionSeen | NativeText | StackText | AttemptBegan


class LauncherLog(msgspec.Struct, frozen=True):
    """One log. launchers: whose wording was recognised; attempts are separated by the launcher's restarts. rank,
    local_rank, attempt (torchrun's restart count): of the one process whose output it is, as its path says (torchrun's
    --log-dir, a folder a rank); events that are its own words have its rank then."""

    path: str | None = None
    launchers: list[str] = []
    lines: int = 0
    events: list[LauncherEvent] = []
    cut: bool = False
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None

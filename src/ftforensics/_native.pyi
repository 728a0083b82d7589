"""Types of the C extension. All text is UTF-8 bytes: nothing is encoded or decoded inside the job's handlers."""

from collections.abc import Callable, Sequence

def install(
    directory: bytes,
    stem: bytes,
    static_members: bytes,
    helper_argv: Sequence[bytes],
    helper_env: Sequence[bytes],
    inventory_argv: Sequence[bytes],
    memory_files: Sequence[bytes],
    raw_stack: bool,
) -> None:
    """Take SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT; note TERM, HUP, INT, XCPU and USR1.

    directory: absolute run folder; stem: "host-rank0" (pid and start time are appended);
    static_members: whole record lines, each `"name": value,\n`, written verbatim;
    helper_argv: exec'ed at a crash with the record path and pid appended, empty = no helper;
    inventory_argv: exec'ed outside the job after install and when libraries change, with the pid appended; its stdout
    is whole record lines (`"libraries": [...],\n"driver": {...},\n`); empty = none;
    memory_files: (usage file, limit file) of the memory cgroup, or empty.
    Raises OSError naming the system call. Calling it again changes the configuration.
    """

def configure_recorder(
    version: bytes,
    text: bytes,
    group_mount: bytes,
    group_root: bytes,
    group_version: int,
    local_directory: bytes,
    gpu: bytes,
    removable: Sequence[bytes],
    rank: int,
    local_rank: int,
    world_size: int,
    worker_of: int,
) -> None:
    """What a flight recorder's ring says about this process; call it after install().

    text: `key=value` entries, each ended by a zero byte; group_mount, group_root: where the hierarchy with the memory
    controller is mounted and which group lies there, b"" and 0 for none; local_directory: where rings lie when the run
    folder is on a network file system, made when needed; gpu: index or UUID for NVML, b"" for none; removable: folders
    to remove at the end when they are empty; -1 for no rank, 0 for no worker_of. Raises OSError."""

def start_recorder() -> str | None:
    """Make the ring, or move it to where install() says now. Returns why there is none."""

def ring_path() -> bytes | None:
    """The ring of this process, None when there is none (yet: a forked child makes it a tenth of a second later)."""

def duplicate(fd: int, lowest: int) -> int:
    """fcntl(F_DUPFD_CLOEXEC). Raises OSError."""

def leave(how: str, status: int) -> None:
    """The process ends ("exit") or becomes another program ("exec"): marks the end, removes ring and folders. With a
    status other than 0 the ring stays."""

def remove_at_success(path: bytes) -> None:
    """A file of this process's, to be removed when it ends with status 0 or becomes another program. Raises OSError."""

def come_back() -> None:
    """It did not become another program: the ring gets its file again."""

def configure_ledger(path: bytes, line: bytes) -> None:
    """Where the end of this process is written to at exit(3), b"" for nowhere; line: the JSON object up to the value of
    "at". Raises OSError."""

def end_ledger(code: int) -> None:
    """Write it now: the process leaves with this code, without exit handlers."""

def uninstall() -> None: ...
def is_installed() -> bool: ...
def record_path() -> bytes | None:
    """The path the record of this process would get."""

def set_python_dumper(signal_current: int, signal_all: int, fd: int) -> None:
    """faulthandler.register()ed signals whose C handlers dump the current and all threads into memfd `fd`;
    reads their handlers with sigaction and gives the signals back (SIG_DFL)."""

def set_faulthandler_fd(fd: int) -> None:
    """Where the user's faulthandler.enable() prints; -1 when it is disabled."""

def set_python_state(state: int) -> None:
    """0 running, 1 exiting (atexit), 2 finalized."""

def set_phase(names: Sequence[bytes]) -> None: ...
def set_step(step: int) -> None: ...
def set_note(text: bytes) -> None: ...
def check_handlers() -> int:
    """Take back stolen fault signals now. Returns how many were stolen."""

def check_thread() -> None:
    """Give the calling thread a guarded alternate stack unless it has a good one."""

def start_watcher() -> str | None:
    """Why its thread could not be started, None when it was (or will be, once os.fork() is over)."""

def stop_watcher() -> None:
    """Stop the C thread and wait for it (before fork)."""

def start_watcher_later() -> None:
    """Start the C thread from a pending call, after os.fork() has looked at the thread count (3.12+ warns)."""

def after_fork_child() -> None: ...
def threads_started() -> int:
    """How many alternate stacks were made, for tests."""

def wrap_method(
    cls: type, name: str, before: Callable[[], object] | None, after: Callable[[], object] | None
) -> object:
    """A method descriptor in C (no Python frame in anybody's traceback) that calls `before()`, the original method
    `cls.name`, then `after()`; exceptions of the hooks are dropped, the original's pass through."""

def wrap_function(
    original: Callable[..., object],
    before: Callable[..., object] | None,
    raised: Callable[[BaseException], object] | None,
    name: str,
) -> object:
    """The same for a function: calls `before` with the caller's positional arguments, then `original`, then `raised`
    with the exception that it raised, if any. name: its `__name__`."""

def test_hook(step: str, kind: str) -> None:
    """Tests only: make handler step `step` misbehave: "segv", "bus", "ill", "hang", "malloc", "" to clear."""

def nearest_symbols(
    path: bytes, symtab_offset: int, symtab_size: int, strtab_offset: int, strtab_size: int, addresses: Sequence[int]
) -> list[tuple[int, int, bytes] | None]:
    """For each file address (st_value space) the function symbol with the highest st_value at or below it:
    (st_value, st_size, name), or None."""

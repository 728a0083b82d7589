"""Writes `*.exception.json`: what a Python exception said that nobody caught, schema `ftforensics.exception/1`.

The process is about to end, in whatever state: out of memory, its disk full, with an exception whose str() raises.
So each part is made on its own and is left out when it cannot be made, everything has a bound, and the file's lines
stand in the order of their worth. What files cost is paid by a thread that is left alone after `_PATIENCE` seconds:
behind the run folder may be a server that went away.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread

from ftforensics.capture import environment, marks, procfs, spawn, torchrun_summary
from ftforensics.capture.identity import json_text, printable
from ftforensics.capture.peer_lost import says_peer_lost
from ftforensics.capture.redact import redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType, TracebackType
    from typing import TypeVar

    from ftforensics.capture.identity import Value

    T = TypeVar("T")

SUFFIX = ".exception.json"
_CRASH_SUFFIX = ".crash.json"
SCHEMA = "ftforensics.exception/1"
_PATIENCE = 2.0  # seconds
_PATIENCE_FOR_TEXT = 1.0  # with an exception's own __str__
_MESSAGE = 4096  # characters, as all below
_NAME = 500
_PATH = 4096
_LINE = 200
_FRAMES = 50  # from either end
_LINKS = 8
_BASES = 20
_DEEPEST = 100_000  # frames that are counted at most
_NAMES = 100  # of files that are tried
# Where code lies that the job's author did not write.
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python")


class Ended:
    """What was seen. installed: pid of the process that called install()."""

    def __init__(
        self, hook: str, value: BaseException, traceback: TracebackType | None, thread: str | None, installed: int
    ) -> None:
        import time

        self.realtime = time.time()
        self.monotonic = time.monotonic()
        self.boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.hook = hook
        self.value = value
        self.traceback = traceback
        self.thread = thread
        self.installed = installed
        self.tid = get_native_id()


def traceback_of(value: BaseException) -> TracebackType | None:
    """An exception class may have a property of that name. What the interpreter sees is read here, and nothing of the
    job's runs; so it is with all below, and a class's metaclass may see each look at an attribute."""
    found: TracebackType | None = _TRACEBACK(value)
    return found


_TRACEBACK = vars(BaseException)["__traceback__"].__get__
_CAUSE = vars(BaseException)["__cause__"].__get__
_CONTEXT = vars(BaseException)["__context__"].__get__
_SUPPRESSED = vars(BaseException)["__suppress_context__"].__get__
_ARGUMENTS = vars(BaseException)["args"].__get__
_TYPE_NAME = vars(type)["__name__"].__get__
_QUALIFIED_NAME = vars(type)["__qualname__"].__get__
_MODULE = vars(type)["__module__"].__get__
_ORDER = vars(type)["__mro__"].__get__
_MEMBERS = vars(type)["__dict__"].__get__


def write(native: ModuleType, members: bytes, ended: Ended) -> None:
    """Write the record and, in a rank, torchrun's error file. members: of `identity.static_members`."""
    path = native.record_path()
    if path is None:
        return
    crash_path = os.fsdecode(path)
    exceptions = describe(ended.value, ended.traceback)
    # An uncaught KeyboardInterrupt makes the interpreter end itself by SIGINT, which it forgets at the next eval() of a
    # text (run_eval_code_obj in CPython's pythonrun.c), and importing `re` evaluates some (namedtuple).
    lost = _or_none(lambda: _peer_lost(exceptions)) if issubclass(type(ended.value), Exception) else False
    text = "".join(_lines(ended, exceptions, lost)).encode("utf-8") + _tail(members)
    summary = _or_none(lambda: _summary(ended, exceptions, lost, os.path.dirname(crash_path)))

    def write_files() -> None:
        _write_new(native, crash_path.removesuffix(_CRASH_SUFFIX), text)
        if summary is not None:
            target, line = summary
            stack = _or_none(lambda: printable_lines("".join(_traceback(exceptions)))) or ""
            torchrun_summary.write_new(target, torchrun_summary.content(line, stack, ended.realtime))

    _within(_PATIENCE, write_files)


def describe(value: BaseException, traceback: TracebackType | None = None) -> list[dict[str, Value]]:
    """The exception and what it came from, as the record's member `exceptions`, redacted. traceback: the first one's,
    where it has none."""
    found: list[dict[str, Value]] = []
    seen: set[int] = set()
    link: str | None = None
    current: BaseException | None = value
    while current is not None and len(found) < _LINKS and id(current) not in seen:
        seen.add(id(current))
        leaf = _first_leaf(current)
        frames = _frames(traceback_of(leaf) or traceback_of(current) or (None if found else traceback))
        found.append({**_one(leaf), "frames": frames, "link": link})
        current, link = _before(leaf if _CAUSE(leaf) or _CONTEXT(leaf) else current)
    return found


def _before(value: BaseException) -> tuple[BaseException | None, str | None]:
    cause = _CAUSE(value)
    if cause is not None:
        return cause, "cause"
    return (None if _SUPPRESSED(value) else _CONTEXT(value)), "context"


def _first_leaf(value: BaseException) -> BaseException:
    """Of an ExceptionGroup (3.11 and later) what it was raised for."""
    for _ in range(_LINKS):
        parts = _or_none(lambda group=value: group.exceptions) if _is_group(value) else None  # type: ignore[misc]
        if not (isinstance(parts, tuple) and parts and isinstance(parts[0], BaseException)):
            break
        value = parts[0]
    return value


def _is_group(value: BaseException) -> bool:
    return any(_TYPE_NAME(base) == "BaseExceptionGroup" for base in _ORDER(type(value)))


def _one(value: BaseException) -> dict[str, Value]:
    kind = type(value)
    of_system = issubclass(kind, OSError)  # isinstance() would ask a class that lies
    number = _or_none(lambda: getattr(value, "errno", None)) if of_system else None
    name = _or_none(lambda: getattr(value, "filename", None)) if of_system else None
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    return {
        "type": _name(kind),
        "message": _message(value),
        "errno": number if type(number) is int else None,
        "filename": redact(name[:_PATH]) if isinstance(name, str) else None,
        "bases": [_name(base) for base in _ORDER(kind)[1:_BASES] if base not in (object, BaseException)],
    }


def _name(kind: type) -> str:
    name = str(_QUALIFIED_NAME(kind))
    module = _or_none(lambda: _MODULE(kind))
    return (name if module == "builtins" or not isinstance(module, str) else f"{module}.{name}")[:_NAME]


def _message(value: BaseException) -> str:
    """Its own __str__ may wait: for a GPU that hangs, where it shows a tensor."""
    texts = ["<str() of it did not return>"]

    def run() -> None:
        try:
            texts[0] = str.__getitem__(str(value), slice(2 * _MESSAGE))  # it may return a subclass
        except BaseException:
            texts[0] = "<str() of it failed>"

    try:
        if _is_plain(value):
            run()
        else:
            _within(_PATIENCE_FOR_TEXT, run)
        return redact(texts[0])[:_MESSAGE]
    except BaseException:
        return "<str() of it failed>"


def _is_plain(value: BaseException) -> bool:
    """Whether str() runs no code but the interpreter's."""
    found = [_MEMBERS(base)["__str__"] for base in _ORDER(type(value)) if "__str__" in _MEMBERS(base)]
    own = type(found[0]) is not type(BaseException.__str__)
    return not own and all(type(part) in (str, bytes, int, float, bool, type(None)) for part in _ARGUMENTS(value))


def _frames(traceback: TracebackType | None) -> list[Value]:
    """Outermost first; of a deep recursion both ends."""
    first: list[TracebackType] = []
    last: list[TracebackType] = []
    for _ in range(_DEEPEST):
        if traceback is None:
            break
        if len(first) < _FRAMES:
            first.append(traceback)
        else:
            last.append(traceback)
            if len(last) >= 2 * _FRAMES:
                del last[:_FRAMES]
        traceback = traceback.tb_next
    return [_frame(one) for one in first + last[-_FRAMES:]]


def _frame(traceback: TracebackType) -> dict[str, Value]:
    code = traceback.tb_frame.f_code
    return {
        "file": redact(code.co_filename[:_PATH]),
        "line": traceback.tb_lineno,
        "function": code.co_name[:_NAME],
    }


def _peer_lost(exceptions: list[dict[str, Value]]) -> bool:
    """Whether another process's end is in what this one came from, however it was wrapped: then it is not known to have
    failed by itself."""
    for one in exceptions:
        innermost = _last_frame(one)
        file = innermost.get("file") if innermost else None
        if says_peer_lost(str(one["type"]), str(one["message"]), file if isinstance(file, str) else None):
            return True
    return False


def _lines(ended: Ended, exceptions: list[dict[str, Value]], lost: bool | None) -> Iterator[str]:
    """All but the last members, one a line; `exceptions` has one a line again."""
    pid = os.getpid()
    yield f'{{"schema": "{SCHEMA}",\n'
    members: dict[str, Callable[[], Value]] = {
        "time": lambda: {
            "realtime": round(ended.realtime, 6),
            "monotonic": round(ended.monotonic, 6),
            "boottime": round(ended.boottime, 6),
            "boot_id": (procfs.read_text("/proc/sys/kernel/random/boot_id", 64) or "").strip() or None,
        },
        "process": lambda: _process(ended, pid),
        "hook": lambda: ended.hook,
        "thread": lambda: None if ended.thread is None else redact(ended.thread[:_NAME]),
        "peer_lost": lambda: lost,
        "phase": lambda: marks.phase_of(ended.value),
        "step": marks.last_step,
        "attempt": lambda: environment.attempt(os.environ),
        "worker_of": lambda: spawn.worker_of or (ended.installed if pid != ended.installed else None),
    }
    for name, value in members.items():
        yield f'"{name}": {json_text(_or_none(value))},\n'
    yield '"exceptions": [\n' + ",\n".join(json_text(one) for one in exceptions) + "\n],\n"


def _process(ended: Ended, pid: int) -> dict[str, Value]:
    names = sys.modules.get("threading")
    thread = getattr(names, "_active", {}).get(get_ident()) if names else None
    return {
        "pid": pid,
        "tid": ended.tid,
        "ppid": os.getppid(),
        "nspid": _namespace_pids(),
        "start_ticks": procfs.start_ticks(pid),
        "fork_of": ended.installed if pid != ended.installed else None,
        "thread_name": redact(str(thread.name)[:_NAME]) if thread is not None else None,
        "main_thread": ended.tid == pid,
        "python": "running",
    }


def _namespace_pids() -> list[int]:
    for line in (procfs.read("/proc/self/status", 4096) or b"").split(b"\n"):
        if line.startswith(b"NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return []


def _tail(members: bytes) -> bytes:
    """The lines of `tool` and `job`, and the end of the object."""
    lines = [line for line in members.split(b"\n") if line.startswith((b'"tool"', b'"job"'))]
    return b"\n".join(lines).removesuffix(b",") + b"\n}\n" if lines else b'"tool": null\n}\n'


def _write_new(native: ModuleType, stem: str, text: bytes) -> None:
    """Never over another file, never through a link. What a full disk leaves of it stays: the first lines are the best.
    Raises OSError."""
    for counter in range(_NAMES):
        path = f"{stem}{f'-{counter}' if counter else ''}{SUFFIX}"
        try:
            fd = _create(path)
        except FileExistsError:
            continue
        written = 0
        try:
            native.remove_at_success(os.fsencode(path))
            while written < len(text):
                written += os.write(fd, text[written:])
        finally:
            os.close(fd)
            if not written:
                os.unlink(path)
        return


def _create(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:  # another rank that ended took the empty folder away
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, flags, 0o600)


def _within(seconds: float, action: Callable[[], None]) -> None:
    """Run it, and wait for it so long. Its errors are nobody's."""
    done = allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            action()
        except BaseException:
            pass  # no memory, a full disk, the interpreter going down
        finally:
            done.release()

    try:
        start_new_thread(run, ())
    except Exception:  # no thread can be had, or not any more: 3.12 at interpreter shutdown
        run()
    done.acquire(timeout=seconds)


def _summary(
    ended: Ended, exceptions: list[dict[str, Value]], lost: bool | None, folder: str
) -> tuple[str, str] | None:
    """torchrun's error file and the sentence for it. None for what does not end the rank, and for a rank that only lost
    a peer: torchrun calls the rank with the oldest file the first failure, and one that was killed has none."""
    if (
        ended.hook != "sys.excepthook"
        or ended.thread is not None
        or lost
        or not issubclass(type(ended.value), Exception)
    ):
        return None
    target = torchrun_summary.error_file(os.environ)
    if target is None or not torchrun_summary.is_the_rank(target):
        return None
    first = exceptions[0]
    number = environment.rank(os.environ)
    who = "a rank" if number is None else f"rank {number}"
    kind = str(first["type"]).rpartition(".")[2]
    message = printable_lines(str(first["message"])).strip().partition("\n")[0][:_LINE]
    place = _place(first)
    where = f" ({place})" if place else ""
    said = f": {message}" if message else ""
    target = torchrun_summary.where_torchrun_looks(target, os.getpid())
    return target, f"ftforensics: {who} raised {kind}{said}{where}; ftforensics analyze {_quoted(folder)}"


def _place(one: dict[str, Value]) -> str | None:
    """ "train.py:88", the innermost line of the job's own code, else the innermost."""
    frames = [frame for frame in _list(one["frames"]) if isinstance(frame, dict)]
    own = [
        frame
        for frame in frames
        if not str(frame["file"]).startswith("<") and not any(part in str(frame["file"]) for part in _LIBRARIES)
    ]
    for frame in (own or frames)[-1:]:
        return printable_lines(f"{os.path.basename(str(frame['file']))}:{frame['line']}")
    return None


def _traceback(exceptions: list[dict[str, Value]]) -> Iterator[str]:
    """As Python prints it, from what was recorded."""
    import linecache

    joints = {
        "cause": "\nThe above exception was the direct cause of the following exception:\n\n",
        "context": "\nDuring handling of the above exception, another exception occurred:\n\n",
    }
    for one in reversed(exceptions):
        frames = _list(one["frames"])
        if frames:
            yield "Traceback (most recent call last):\n"
        for frame in frames:
            if isinstance(frame, dict):
                yield f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}\n'
                source = linecache.getline(str(frame["file"]), int(str(frame["line"] or 0))).strip()
                if source:
                    yield f"    {redact(source[:_PATH])}\n"
        message = str(one["message"])
        yield f"{one['type']}: {message}\n" if message else f"{one['type']}\n"
        if one is not exceptions[0]:
            yield joints.get(str(one["link"]), "\n")


def _last_frame(one: dict[str, Value]) -> dict[str, Value] | None:
    last = _list(one["frames"])[-1:]
    return last[0] if last and isinstance(last[0], dict) else None


def _list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else []


def printable_lines(text: str) -> str:
    """Text for a terminal: what could move its cursor becomes a question mark, lines stay."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in printable(text))


def _quoted(path: str) -> str:
    plain = path and all(letter.isalnum() or letter in "/._-+=:@%," for letter in path)
    return printable_lines(path if plain else "'" + path.replace("'", "'\"'\"'") + "'").replace("\n", "?")


def _or_none(make: Callable[[], T]) -> T | None:
    """A part that cannot be made is left out."""
    try:
        return make()
    except BaseException:
        return None

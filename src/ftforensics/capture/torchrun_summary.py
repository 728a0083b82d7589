"""torchrun's error file, whose text stands in torchrun's own summary of a failed run.

torchrun names a file for each rank in TORCHELASTIC_ERROR_FILE and prints, when that rank failed, what is in it. Its
`@record` decorator writes it for exceptions of the function that it decorates; a script without it, and every death by
a signal, leaves "error_file: <N/A>". The format is that of torch/distributed/elastic/multiprocessing/errors
(error_handler.py writes, ProcessFailure reads; the same in torch 1.9 to 2.13): the summary prints `py_callstack`, the
file's timestamp decides which rank torchrun calls the first, and a file that is not JSON ends the agent. So a file
appears whole or not at all, and one that is there is never touched.
"""

from __future__ import annotations

import os

from ftforensics.capture import procfs
from ftforensics.capture.identity import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "TORCHELASTIC_ERROR_FILE"
# "0": torchrun's summary is left alone.
SWITCH = "FTFORENSICS_TORCHRUN_SUMMARY"
_OFF = ("0", "off", "no", "false")
_MOST = 64 * 1024  # characters of the call stack


def error_file(environ: Mapping[str, str]) -> str | None:
    """The error file that torchrun named for the rank with this environment, as it named it: with a relative --log-dir
    the path is relative to the directory that both were started in. None when it named none or when we are switched
    off. The rank's children inherit the variable: see `is_the_rank`."""
    if environ.get(SWITCH, "").lower() in _OFF:
        return None
    path = environ.get(VARIABLE, "")
    return path if path and "\0" not in path else None


def is_the_rank(path: str, pid: int | None = None) -> bool:
    """Whether torchrun itself started the process, so that the error file is about it. Its parent's environment tells:
    a rank's child has a parent with the same variable, torchrun has none, or its own under another torchrun.

    path: error_file()'s; pid: of a process that is alive, default the calling one. False when that cannot be read.
    """
    parent = os.getppid() if pid is None else procfs.parent(pid)
    block = procfs.read(f"/proc/{parent}/environ", 1 << 20) if parent else None
    if not block:
        return False
    return f"{VARIABLE}={path}".encode("utf-8", "surrogateescape") not in block.split(b"\0")


def where_torchrun_looks(path: str, pid: int) -> str:
    """The absolute path of a living rank's error file: torchrun, its parent, opens a relative one from its own working
    directory, which the rank may have left."""
    if path.startswith("/"):
        return path
    try:
        return os.path.join(os.readlink(f"/proc/{procfs.parent(pid)}/cwd"), path)
    except OSError:
        return path


def content(line: str, stack: str, timestamp: float) -> bytes:
    """What the file holds. line: the sentence that the summary shall show first; stack: what comes below it, may be
    empty; both redacted by the caller. timestamp: seconds since 1970, of the failure. All of it is ASCII: torchrun
    reads the file in the encoding of its locale, and a byte that is nothing there would end it."""
    shown = f"{line}\n{stack}" if stack else line
    if len(shown) > _MOST:
        half = _MOST // 2
        shown = f"{shown[:half]}\n  [...]\n{shown[-half:]}"
    extra = {"py_callstack": shown, "timestamp": str(int(timestamp))}
    text = json_text({"message": {"message": line, "extraInfo": extra}})
    return "".join(letter if letter.isascii() else _escaped(letter) for letter in text).encode("ascii")


def _escaped(letter: str) -> str:
    """As JSON has it: by units of UTF-16 (RFC 8259, section 7)."""
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def write_new(path: str, content: bytes) -> bool:
    """Whether the file is there now and is ours: it appears whole, and never in the place of another. Never raises."""
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        try:
            if os.write(fd, content) != len(content):  # a full disk
                return False
        finally:
            os.close(fd)
        return _rename_to_new(unfinished, path)
    except OSError:
        return False
    finally:
        try:
            os.unlink(unfinished)
        except OSError:
            pass  # it has been renamed


def _rename_to_new(unfinished: str, path: str) -> bool:
    try:
        os.link(unfinished, path)  # unlike rename(2) it replaces nothing
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            return False
        os.rename(unfinished, path)
    return True

"""Writing to the standard streams and to files, with the ways it can fail."""

from __future__ import annotations

import errno
import os
import stat
import sys

from ftforensics.cli.errors import Failure
from ftforensics.report.escape import printable


class OutputFailure(Failure):
    """The report could not be written: a full disk, a closed stream, a folder without permission."""


class StreamFailure(OutputFailure):
    """The same of standard output: nothing more can be said there."""


def write_stdout(text: str) -> None:
    """The whole text, flushed. Raises BrokenPipeError when the reader is gone, else StreamFailure."""
    stream = sys.stdout
    if stream is None:  # started with fd 1 closed (`>&-`)
        raise StreamFailure("standard output is closed", hint="give it a file: > FILE")
    try:
        stream.write(fitting(text, stream.encoding or "ascii"))
        stream.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise StreamFailure(*_reason("standard output", error)) from None


def write_json(text: str) -> None:
    """The same of JSON, which stays JSON on every stream."""
    from ftforensics.report.json import harmless

    write_stdout(harmless(text, (sys.stdout and sys.stdout.encoding) or "ascii"))


def flush_stdout() -> None:
    """What print() or argparse left in the buffer, while an error can still be told."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise StreamFailure(*_reason("standard output", error)) from None


def in_colour(wanted: str, *, to_file: bool = False) -> bool:
    """Is standard output to be coloured? --color decides; "auto": a terminal, unless the environment refuses it."""
    if wanted != "auto":
        return wanted == "always"
    if to_file or refuses_colour():
        return False
    try:
        return sys.stdout is not None and sys.stdout.isatty()
    except ValueError:  # closed
        return False


def refuses_colour() -> bool:
    """A dumb terminal, or NO_COLOR (no-color.org: set and not empty)."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def close_stdout() -> None:
    """After a failed write: what is still buffered must not raise again when the interpreter ends (status 120)."""
    _silence(1)


def _silence(descriptor: int) -> None:
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
    except OSError:
        return  # nothing better can be done, and nothing worse happens than the status 120


def fitting(text: str, encoding: str) -> str:
    """`text` with what the stream cannot encode replaced: an ellipsis by three dots, anything else by its escape."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        plain = text.replace("…", "...")
        return plain.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode("ascii")
    return text


def complain(text: str) -> None:
    """One line on standard error. A standard error that is closed or full is no reason to fail."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"ftforensics: {fitting(printable(text), sys.stderr.encoding or 'ascii')}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        _silence(2)


def write_file(path: str, text: str, *, follow: bool = True) -> None:
    """`text` as UTF-8 in `path`, whole or not at all; a new file is readable by its owner only.

    The report quotes the job's arguments and logs, so it is as private as the record. follow: `path` is the person's
    choice, and may be a link or a device; else it is ours, and whatever else is found there is replaced.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        if not follow:
            _replace(path, data)
            return
        # Not of the real path: that of /dev/stdout is no path when it is a pipe.
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            _write_special(path, data)
        else:
            _replace(os.path.realpath(path), data)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise OutputFailure(*_reason(path, error)) from None


def _write_special(path: str, data: bytes) -> None:
    """A device or pipe. Without waiting: a FIFO that nobody reads refuses with ENXIO instead of holding us for ever."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as stream:
        stream.write(data)


def _replace(path: str, data: bytes) -> None:
    import tempfile  # slow to import, and rarely used

    # mkstemp gives mode 0600 and O_EXCL.
    descriptor, temporary = tempfile.mkstemp(prefix=".ftforensics-", dir=os.path.dirname(path) or ".")
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _reason(what: str, error: OSError | ValueError) -> tuple[str, str | None]:
    if isinstance(error, ValueError):
        return f"cannot write to {what}: {error}", None
    reason = os.strerror(error.errno) if error.errno else str(error)
    hint = {
        errno.ENOSPC: "free some space there, or give another place",
        errno.EDQUOT: "your quota is used up; give another place",
        errno.EACCES: "give a place where you may write",
        errno.ENOENT: "its folder does not exist",
        errno.EISDIR: "give a file name in it",
        errno.ENXIO: "nobody reads this pipe",
        errno.EBADF: "it is closed; give it a file: > FILE",
    }.get(error.errno or 0)
    return f"cannot write to {what}: {reason}", hint

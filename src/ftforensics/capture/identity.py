"""Who this process is, as finished record lines.

The handler cannot format strings, so everything that is known at install is rendered here, once, into the members
`tool`, `job` and `core` of `ftforensics.crash/1` and copied into the record byte by byte at a crash.
"""

from __future__ import annotations

import os
import sys

from ftforensics.capture import VERSION, environment, procfs
from ftforensics.capture.redact import redact_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    Value: TypeAlias = "str | int | float | bool | Sequence[Value] | Mapping[str, Value] | None"

_MAX_ARGUMENTS = 256
_MAX_ARGUMENT = 4096
_ESCAPES: dict[int, str] = {code: f"\\u{code:04x}" for code in (*range(0x20), 0x7F)}
_ESCAPES.update({ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r"})


def printable(text: str) -> str:
    """Text that is valid UTF-8: bytes that were not (surrogates, see PEP 383) become the four characters \\xNN."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that no byte stands behind
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_text(value: Value) -> str:
    """A value as JSON on one line. Importing json costs 3 ms inside the job; this is all of it that a record needs."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return '"' + printable(value).translate(_ESCAPES) + '"'
    if hasattr(value, "items"):
        return "{" + ", ".join(f"{json_text(name)}: {json_text(inner)}" for name, inner in value.items()) + "}"
    return "[" + ", ".join(json_text(inner) for inner in value) + "]"


def static_members(environ: Mapping[str, str], helper: str, raw_stack: bool, cgroup_lines: list[str]) -> bytes:
    """The lines `"tool": {...},` `"job": {...},` `"core": {...},`, in UTF-8, each ended by a newline."""
    system = os.uname()
    members: dict[str, Value] = {
        "tool": {
            "name": "ftforensics",
            "version": VERSION,
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "helper": helper,
            "raw_stack": raw_stack,
        },
        "job": {
            "host": system.nodename,
            "exe": link("/proc/self/exe"),
            "argv": command_line(_MAX_ARGUMENTS, _MAX_ARGUMENT),
            "cwd": _working_directory(),
            "rank": environment.rank(environ),
            "local_rank": environment.local_rank(environ),
            "world_size": environment.world_size(environ),
            "environment": [{"name": name, "value": value} for name, value in environment.recorded_variables(environ)],
            "cgroup": list(cgroup_lines),
            "python_executable": sys.executable or None,
            "sys_prefix": sys.prefix,
            "kernel": system.release,
            "machine": system.machine,
            "glibc": glibc_version(),
            **_processor(),
        },
        "core": {
            "pattern": _line("/proc/sys/kernel/core_pattern"),
            "filter": _line("/proc/self/coredump_filter"),
        },
    }
    text = "".join(f'"{name}": {json_text(value)},\n' for name, value in members.items())
    return text.encode("utf-8")


def glibc_version() -> str | None:
    """ "2.36", or None when the C library is not glibc (musl knows no such name)."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    return name.partition(" ")[2] or None if name else None


def command_line(most: int, longest: int) -> list[str]:
    """What the process was started with, redacted: at most so many arguments, of at most so many characters each."""
    # sys.argv is the job's to change; orig_argv is what the process was started with, interpreter flags included.
    arguments = list(sys.orig_argv) or list(sys.argv)
    redacted = redact_arguments([argument[: 2 * longest] for argument in arguments[:most]])
    return [argument[:longest] for argument in redacted]


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def link(path: str) -> str | None:
    """Where a symbolic link leads, or None when it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def _line(path: str) -> str | None:
    text = procfs.read_text(path, 4096)
    return None if text is None else text.strip()


def _processor() -> dict[str, Value]:
    """Flags and model of the first processor. Only the head of /proc/cpuinfo is read: on a node with 256 of them the
    whole file takes the kernel milliseconds."""
    found: dict[str, Value] = {"cpu_flags": None, "cpu_model": None}
    head = procfs.read_text("/proc/cpuinfo", 8192) or ""
    for line in head.splitlines():
        name, _, value = line.partition(":")
        name = name.strip()
        if name in ("flags", "Features") and found["cpu_flags"] is None:
            found["cpu_flags"] = value.strip()
        elif name in ("model name", "CPU part") and found["cpu_model"] is None:
            found["cpu_model"] = value.strip()
    return found

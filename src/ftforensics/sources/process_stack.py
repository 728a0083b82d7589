"""The libraries and the software of a process that runs now: what `/proc/PID` says of it, and the files it names."""

from __future__ import annotations

import os

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.crash import Library
from ftforensics.model.software import Software
from ftforensics.parsers.proc_maps import parse_mapping
from ftforensics.sources.libraries import Mapped, loaded_libraries, with_pins
from ftforensics.sources.software import read_software

_ENVIRONMENT_LIMIT = 2 << 20  # bytes; the kernel allows 2 MiB of arguments and environment on x86 (man 2 execve)
_SEARCH_PATH = b"LD_LIBRARY_PATH="


class ProcessStack(msgspec.Struct, frozen=True):
    """libcuda: its path, when it is loaded; mapped: how many files the process has mapped, none when it is over."""

    libraries: list[Library]
    software: Software
    libcuda: str | None = None
    mapped: int = 0


def stack_of_process(host: Host, pid: int, files: Host | None = None) -> ProcessStack:
    """files: where the paths that the process sees lie, when they are another container's (`in_other_files`).

    Raises Refusal when the process is gone or its maps are not readable for us.
    """
    files = files or host
    lines = host.read_text(f"/proc/{pid}/maps").splitlines()
    mappings = [mapping for line in lines if (mapping := parse_mapping(line)) and mapping.path.startswith("/")]
    mapped = [Mapped(mapping.path, deleted=mapping.deleted) for mapping in mappings]
    libraries = loaded_libraries(mapped, files, search_path=search_path(host, pid))
    software = read_software(files, libraries=libraries, prefix=_prefix(host, pid))
    libcuda = next((library.path for library in libraries if library.kind == "libcuda"), None)
    return ProcessStack(with_pins(libraries, software), software, libcuda, len(mapped))


def in_other_files(host: Host, pid: int) -> bool:
    """Do the paths that the process has mapped lie below another root than ours, as in a container?

    A mount namespace of its own alone, as systemd's PrivateTmp makes one, leaves its libraries where they are. Of a
    process after chroot(2) the kernel prints the paths as we see them: there the program itself is where it says.
    """
    try:
        ours, its = (host.stat(f"/proc/{who}/root/") for who in ("self", pid))
        if (ours.st_dev, ours.st_ino) == (its.st_dev, its.st_ino):
            return False
        lines = host.read_text(f"/proc/{pid}/maps").splitlines()
        program = next((one for line in lines if (one := parse_mapping(line)) and one.path.startswith("/")), None)
        return program is not None and host.stat(program.path).st_ino != program.inode
    except Refusal as refusal:
        return refusal.absent and host.exists(f"/proc/{pid}/maps")


def search_path(host: Host, pid: int) -> str | None:
    """LD_LIBRARY_PATH as the process was started with: the loader reads it once. Of the environment nothing else is
    looked at."""
    try:
        environment = host.read_start(f"/proc/{pid}/environ", _ENVIRONMENT_LIMIT)
    except Refusal:
        return None
    for variable in environment.split(b"\0"):
        if variable.startswith(_SEARCH_PATH):
            return variable[len(_SEARCH_PATH) :].decode("utf-8", "backslashreplace")
    return None


def _prefix(host: Host, pid: int) -> str | None:
    """/v of a process that was started as /v/bin/python: a virtual environment's interpreter is a link, so that what
    runs (`/proc/PID/exe`) lies elsewhere. None when its first argument is no absolute path."""
    try:
        program = host.read_start(f"/proc/{pid}/cmdline", _ENVIRONMENT_LIMIT).split(b"\0")[0].decode("utf-8", "replace")
    except Refusal:
        return None
    folder, name = os.path.split(program)
    if not folder.startswith("/") or os.path.basename(folder) != "bin" or not name.startswith("python"):
        return None
    return os.path.dirname(folder)

"""The libraries and the software of a process that runs now: what `/proc/PID` says of it, and the files it names."""

from __future__ import annotations

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.crash import Library
from ftforensics.model.software import Software
from ftforensics.parsers.proc_maps import parse_mapping
from ftforensics.sources.interpreter import environment_of
from ftforensics.sources.libraries import Mapped, loaded_libcuda, loaded_libraries, with_pins
from ftforensics.sources.process_environment import variable
from ftforensics.sources.software import read_software


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
    software = read_software(files, libraries=libraries, prefix=environment_of(host, pid, files))
    return ProcessStack(with_pins(libraries, software), software, loaded_libcuda(libraries), len(mapped))


def in_other_files(host: Host, pid: int) -> bool:
    """Are the files that the process has mapped others than we see at their paths, as those of a container are?

    A mount namespace of its own alone, as systemd's PrivateTmp makes one, mostly leaves its libraries where they are.
    Of a process after chroot(2) the kernel prints the paths as we see them: there the program itself is where it says.
    """
    try:
        ours, its = (host.stat(f"/proc/{who}/root/") for who in ("self", pid))
        if (ours.st_dev, ours.st_ino) == (its.st_dev, its.st_ino):
            return _hidden(host, pid)
        lines = host.read_text(f"/proc/{pid}/maps").splitlines()
        program = next((one for line in lines if (one := parse_mapping(line)) and one.path.startswith("/")), None)
        return program is not None and host.stat(program.path).st_ino != program.inode
    except Refusal as refusal:
        return refusal.absent and host.exists(f"/proc/{pid}/maps")


def _hidden(host: Host, pid: int) -> bool:
    """Is a mapped file where the process sees it, and not where we do? A mount that only the process has."""
    lines = host.read_text(f"/proc/{pid}/maps").splitlines()
    mapped = {one.path: one.inode for line in lines if (one := parse_mapping(line)) and one.path.startswith("/")}
    return any(
        _inode(host, path) != inode and _inode(host, f"/proc/{pid}/root{path}") == inode
        for path, inode in mapped.items()
    )


def _inode(host: Host, path: str) -> int | None:
    try:
        return host.stat(path).st_ino
    except Refusal:
        return None


def search_path(host: Host, pid: int) -> str | None:
    """LD_LIBRARY_PATH as the process was started with: the loader reads it once. Of the environment nothing else is
    looked at."""
    try:
        found = variable(host, pid, b"LD_LIBRARY_PATH")
    except Refusal:
        return None
    return None if found is None else found.decode("utf-8", "backslashreplace")

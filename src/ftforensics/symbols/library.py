"""One loaded library: is the file on disk the one that was mapped, and where are its symbols?

A name from another build of a library is worse than no name, because it looks right. So the file is compared, by
build-id, with what the record read from mapped memory, through the same open descriptor that the symbols are read from
later.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from enum import Enum

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Module
from ftforensics.symbols.debug_files import find_debug_file, unpack_embedded
from ftforensics.symbols.elf import Elf, ElfError, read_elf
from ftforensics.symbols.table import Source, source_of

DELETED = " (deleted)"  # how /proc/pid/maps marks a file that is gone from its path

# Mapped, but no library: shared memory and devices; or a record that lies. To open a device may do something, and to
# read /proc/kmsg takes from it.
NO_LIBRARY = ("/memfd:", "/SYSV", "/dev/", "/anon_hugepage", "/proc/", "/sys/")


class FileState(str, Enum):
    """What the file on disk is to the one that was mapped."""

    SAME = "same"  # equal build-ids
    UNCHECKED = "unchecked"  # no build-id to compare, nothing speaks against it: named, with a gap
    DOUBTFUL = "doubtful"  # no build-id to compare, something speaks against it: not named
    REPLACED = "replaced"  # another build-id: not named
    MISSING = "missing"
    UNREADABLE = "unreadable"
    NOT_A_FILE = "not-a-file"  # [vdso], [heap], memfd, a device


class LibraryFile(msgspec.Struct, frozen=True):
    """What was found out about one library that has frames.

    source: where its names come from: "symtab" (all functions), "debug" (a separate debug file), "dynsym" (stripped:
    exported functions, on Fedora and RHEL local ones too); None: from nowhere.
    """

    path: str  # as the process had it
    state: FileState
    recorded: str | None = None  # build-id in the record
    on_disk: str | None = None  # build-id of the file now
    why: str | None = None
    source: str | None = None

    def gap(self) -> Gap | None:
        """What a reader has to know about this library's names; None when there is nothing to tell."""
        if self.state in (FileState.SAME, FileState.NOT_A_FILE):
            return None
        grant = None
        if self.state in (FileState.MISSING, FileState.UNREADABLE):
            grant = "run analyze on the machine, or in the image, that ran the job"
        elif self.state is FileState.REPLACED and self.recorded:
            grant = f"put the file with build-id {self.recorded} back, or its debug file under /usr/lib/debug"
        return Gap(source="symbols", why=f"{self.path}: {self.why or self.state.value}", grant=grant)


class Library(msgspec.Struct, frozen=True):
    """sources: best first; empty when nothing on this machine can name its functions."""

    file: LibraryFile
    sources: tuple[Source, ...] = ()


def library_path(module: Module) -> str:
    """The module's path without the kernel's mark for a deleted file."""
    return module.path.removesuffix(DELETED) if module.deleted else module.path


def open_library(host: Host, module: Module, stack: ExitStack) -> Library:
    """Find the module's file and symbols. Files stay open until `stack` closes. Raises nothing."""
    path = library_path(module)
    if not path.startswith("/") or path.startswith(NO_LIBRARY):
        return Library(LibraryFile(path, FileState.NOT_A_FILE, module.build_id))
    try:
        fd = stack.enter_context(host.open(path)).fileno()
        elf = read_elf(fd)
        state, why = _compare(module, elf, os.fstat(fd).st_ino)
    except Refusal as refusal:
        state = FileState.MISSING if refusal.absent else FileState.UNREADABLE
        return _without_file(host, module, state, "the file is gone" if refusal.absent else refusal.reason, stack)
    except (ElfError, OSError) as error:
        return _without_file(host, module, FileState.UNREADABLE, str(error), stack)
    if state in (FileState.DOUBTFUL, FileState.REPLACED):
        return _without_file(host, module, state, why, stack, elf.build_id)
    sources = _sources(host, path, fd, elf, stack)
    kind = sources[0].kind if sources else None
    return Library(LibraryFile(path, state, module.build_id, elf.build_id, why, kind), sources)


def _compare(module: Module, elf: Elf, inode: int) -> tuple[FileState, str | None]:
    recorded, on_disk = module.build_id, elf.build_id
    if recorded is not None and recorded == on_disk:
        return FileState.SAME, None
    if recorded is not None:
        return FileState.REPLACED, f"replaced since the crash: build-id {on_disk or 'none'} on disk, {recorded} mapped"
    if module.deleted:
        return FileState.DOUBTFUL, "no build-id, and the mapped file had been deleted from this path"
    if module.inode is not None:
        # A number may be reused, but rarely for the same path. Network and overlay file systems may report
        # different numbers for one file in maps and in stat(2): then names are lost, none is wrong.
        if inode != module.inode:
            return FileState.DOUBTFUL, f"no build-id, and another inode than the mapped file's ({module.inode})"
    elif on_disk is not None:
        return FileState.DOUBTFUL, "no build-id in the record, but in the file"
    return FileState.UNCHECKED, "no build-id: whether this is the file that was mapped cannot be checked"


def _sources(host: Host, path: str, fd: int, elf: Elf, stack: ExitStack) -> tuple[Source, ...]:
    full = source_of("symtab", fd, elf, "symtab")
    if full is None and elf.build_id is not None:
        full = find_debug_file(host, elf.build_id, path, elf, stack)
    if full is not None:
        return (full,)
    # MiniDebugInfo leaves out what .dynsym has, so both are asked.
    return tuple(s for s in (source_of("dynsym", fd, elf, "dynsym"), unpack_embedded(fd, elf, stack)) if s is not None)


def _without_file(
    host: Host, module: Module, state: FileState, why: str | None, stack: ExitStack, on_disk: str | None = None
) -> Library:
    """A separate debug file still has the names, and its build-id says that they are the right ones."""
    path, recorded = library_path(module), module.build_id
    debug = find_debug_file(host, recorded, path, None, stack) if recorded is not None else None
    file = LibraryFile(path, state, recorded, on_disk, why, debug.kind if debug else None)
    return Library(file, (debug,) if debug else ())

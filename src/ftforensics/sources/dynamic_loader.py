"""Which file the dynamic loader would take for a library's name, and what that file brings along, without loading it.

The rules are glibc's (elf/dl-load.c and elf/dl-deps.c of 2.36, man 8 ld.so), in the order of a look-up:

1. A library that is loaded already and was asked for, or calls itself (SONAME), by that name.
2. A name with "/" is a path. For the rest: DT_RPATH of the library that asks, of the one that brought that one in, and
   so on up to the program, unless the library that asks has DT_RUNPATH; LD_LIBRARY_PATH; DT_RUNPATH of the library that
   asks; /etc/ld.so.cache; the default folders.
3. In each folder glibc-hwcaps/x86-64-v4, -v3, -v2 first, as far as the processor goes.
4. A file of another kind of machine is passed over; one that is no ELF file at all ends the search with an error.
5. A file that is loaded already under another name (same device and inode) is not loaded again.

Not followed: audit modules, LD_BIND_NOW and the rest of the environment, hardware subdirectories from before 2.33,
filters (DT_FILTER), and folders that another C library (musl) looks in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.parsers.ld_so_cache import CachedLibrary, read_cache
from ftforensics.parsers.machine_text import processor
from ftforensics.symbols.dynamic import Dynamic, read_dynamic
from ftforensics.symbols.elf import PT_LOAD, Elf, ElfError, read_elf

CACHE = "/etc/ld.so.cache"
CACHE_LIMIT = 32 << 20  # bytes
LOADED_LIMIT = 4096  # files; the largest training process seen maps 600
NOT_FOUND_LIMIT = 1000  # names told
FOLDERS_LIMIT = 256  # of one search path
DEFAULT_FOLDERS = {
    62: ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
    183: ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
}  # Debian's and Fedora's (configure, slibdir); a build of glibc knows its own two or four
PLATFORMS = {62: "x86_64", 183: "aarch64"}

# x86-64 psABI, "Micro-architecture levels", in the names of /proc/cpuinfo.
LEVELS = (
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)


class SearchEnvironment(msgspec.Struct, frozen=True):
    """What of a process's environment the dynamic loader looks at (man 8 ld.so). cwd: for relative and empty entries;
    where it is None they are left out, and said."""

    library_path: str | None = None  # LD_LIBRARY_PATH
    preload: str | None = None  # LD_PRELOAD
    cwd: str | None = None


class NotFound(msgspec.Struct, frozen=True):
    """A library that would not be loaded. name: as it is asked for; needed_by: the file that asks, None: torch itself
    or LD_PRELOAD; why: "not found", or what is wrong with the file that was found; optional: asked for by name at run
    time (libcuda.so.1), `import torch` goes on without it."""

    name: str
    needed_by: str | None = None
    why: str = "not found"
    optional: bool = False


class LoadedFile(msgspec.Struct):
    """A file that is loaded, as far as we pretend. path: as it was found; real: without links, as in /proc/PID/maps;
    names: by which it is known; parent: what brought it in."""

    path: str
    real: str
    identity: tuple[int, int]
    dynamic: Dynamic
    names: set[str]
    parent: LoadedFile | None = None


class _Unusable(Exception):
    """A file that ends the search. The message says what is wrong with it."""


class DynamicLoader:
    """One process that is pretended. `loaded` is in load order, the program first."""

    def __init__(self, host: Host, environment: SearchEnvironment, machine: int) -> None:
        self.loaded: list[LoadedFile] = []
        self.not_found: list[NotFound] = []
        self.gaps: list[Gap] = []
        self._host = host
        self._environment = environment
        self._machine = machine
        self._program: LoadedFile | None = None
        self._levels = self._cpu_levels()
        self._cache = self._read_cache()
        self._library_path: list[str] | None = None
        self._with_levels: dict[str, bool] = {}
        self._absent: set[tuple[str, str | None]] = set()

    def start(self, program: str) -> None:
        """Begin with a program, LD_PRELOAD and what they need. Raises Refusal or ElfError for the program itself."""
        path = self._host.real_path(program)  # its $ORIGIN is /proc/self/exe's
        file = self._open(path, path, None)
        self._program = file
        self.loaded.append(file)
        interpreter = file.dynamic.interpreter
        if interpreter:
            try:
                self.loaded.append(self._open(interpreter, interpreter, file))
            except (Refusal, ElfError, _Unusable) as error:
                self.gaps.append(Gap("loader", f"{interpreter}: {error}"))
        first = [file]
        for name in self._preloaded():
            if found := self._map(name, file, optional=True, called=True):
                first.append(found)
        self._bring_in(first, optional=False)

    def load(self, name: str, by: LoadedFile | None = None, *, optional: bool = False) -> LoadedFile | None:
        """As dlopen(3): the file and everything that it needs. by: who calls, the program when None; optional: what is
        not found is marked so."""
        known = len(self.loaded)
        found = self._map(name, by or self._program, optional=optional, called=True)
        if found is not None and found in self.loaded[known:]:
            self._bring_in([found], optional=optional)
        return found

    def known(self, name: str) -> LoadedFile | None:
        """The loaded file that a name stands for."""
        return next((file for file in self.loaded if name in file.names), None)

    def assume(self, paths: Iterable[str]) -> None:
        """Take files as loaded, whatever brought them in and without what they need."""
        for path in paths:
            try:
                file = self._open(path, path, None)
            except (Refusal, ElfError, _Unusable):
                continue
            self.loaded.append(file)

    def take_back(self, loaded: int, not_found: int) -> None:
        """As after a dlopen that failed: nothing of it stays. Both are lengths of the lists from before."""
        del self.loaded[loaded:]
        for one in self.not_found[not_found:]:
            self._absent.discard((one.name, one.needed_by))
        del self.not_found[not_found:]

    def _bring_in(self, first: list[LoadedFile], optional: bool) -> None:
        """Breadth first, each new file's needs behind those of the files before it."""
        queue = list(first)
        for file in queue:
            for name in file.dynamic.needed:
                if len(self.loaded) >= LOADED_LIMIT:
                    return
                known = len(self.loaded)
                found = self._map(name, file, optional=optional)
                if found is not None and len(self.loaded) > known:
                    queue.append(found)

    def _map(self, name: str, by: LoadedFile | None, *, optional: bool, called: bool = False) -> LoadedFile | None:
        already = self.known(name)
        if already is not None:
            return already
        try:
            file = self._find(name, by)
        except _Unusable as error:
            self._tell(name, by, str(error), optional, called)
            return None
        if file is None:
            self._tell(name, by, "not found", optional, called)
            return None
        for other in self.loaded:
            if other.identity == file.identity:
                other.names |= {name, file.path}
                return other
        self.loaded.append(file)
        return file

    def _tell(self, name: str, by: LoadedFile | None, why: str, optional: bool, called: bool) -> None:
        asks = None if by is None or (called and by is self._program) else by.real
        if (name, asks) not in self._absent and len(self.not_found) < NOT_FOUND_LIMIT:
            self._absent.add((name, asks))
            self.not_found.append(NotFound(name, asks, why, optional))

    def _find(self, name: str, by: LoadedFile | None) -> LoadedFile | None:
        if "/" in name:
            path = self._expanded(name, by)
            return self._try(path, name, by) if path else None
        for path in self._candidates(name, by):
            if file := self._try(path, name, by):
                return file
        return None

    def _candidates(self, name: str, by: LoadedFile | None) -> Iterator[str]:
        if by is None or by.dynamic.runpath is None:
            asked: LoadedFile | None = by
            chain: list[LoadedFile] = []
            while asked is not None and len(chain) < LOADED_LIMIT:
                chain.append(asked)
                asked = asked.parent
            if self._program is not None and self._program not in chain:
                chain.append(self._program)
            for file in chain:
                if file.dynamic.rpath and file.dynamic.runpath is None:
                    yield from self._inside(self._folders(file.dynamic.rpath, ":", file), name)
        yield from self._inside(self._searched(), name)
        if by is not None and by.dynamic.runpath:
            yield from self._inside(self._folders(by.dynamic.runpath, ":", by), name)
        no_default = by is not None and by.dynamic.no_default_folders
        default = DEFAULT_FOLDERS.get(self._machine, ())
        cached = self._cached(name)
        if cached and not (no_default and os.path.dirname(cached) in default):
            yield cached
        if not no_default:
            yield from self._inside(default, name)

    def _inside(self, folders: Iterable[str], name: str) -> Iterator[str]:
        for folder in folders:
            if folder not in self._with_levels:
                self._with_levels[folder] = bool(self._levels) and self._host.exists(f"{folder}/glibc-hwcaps")
            if self._with_levels[folder]:
                for level in self._levels:
                    yield f"{folder}/glibc-hwcaps/{level}/{name}"
            yield f"{folder}/{name}"

    def _cached(self, name: str) -> str | None:
        found = [
            entry for entry in self._cache if entry.name == name and (not entry.hwcap or entry.hwcap in self._levels)
        ]
        rank = [*self._levels, None]
        return min(found, key=lambda entry: rank.index(entry.hwcap)).path if found else None

    def _searched(self) -> list[str]:
        if self._library_path is None:
            text = self._environment.library_path
            self._library_path = self._folders(text.replace(";", ":"), ":", self._program) if text else []
        return self._library_path

    def _folders(self, text: str, separator: str, owner: LoadedFile | None) -> list[str]:
        found = []
        for part in text.split(separator)[:FOLDERS_LIMIT]:
            path = self._expanded(part or ".", owner)
            if path is not None:
                found.append(path)
        return found

    def _expanded(self, text: str, owner: LoadedFile | None) -> str | None:
        """A path of RPATH, RUNPATH, LD_LIBRARY_PATH or dlopen with $ORIGIN and the like filled in (man 8 ld.so)."""
        if "$" in text:
            if owner is None and "ORIGIN" in text:
                return None
            origin = os.path.dirname(owner.path) if owner else ""
            # $LIB is "lib/x86_64-linux-gnu" on Debian, "lib64" elsewhere; told by which one is there.
            platform = PLATFORMS.get(self._machine, "")
            library = f"lib/{platform}-linux-gnu" if self._host.exists(f"/lib/{platform}-linux-gnu") else "lib64"
            for token, value in (("ORIGIN", origin), ("LIB", library), ("PLATFORM", platform)):
                text = text.replace("${" + token + "}", value).replace(f"${token}", value)
        if text.startswith("/"):
            return text.rstrip("/") or "/"
        if self._environment.cwd is None:
            gap = Gap("loader", f"{text!r} is looked up in the process's working directory, which is not known here")
            if gap not in self.gaps:
                self.gaps.append(gap)
            return None
        return os.path.normpath(f"{self._environment.cwd}/{text}")

    def _try(self, path: str, name: str, by: LoadedFile | None) -> LoadedFile | None:
        """None: the search goes on."""
        try:
            return self._open(path, name, by)
        except (Refusal, ElfError):
            return None

    def _open(self, path: str, name: str, parent: LoadedFile | None) -> LoadedFile:
        """Raises Refusal when it cannot be opened, ElfError for a file of another machine, _Unusable for what makes
        the loader give up."""
        with self._host.open(path) as file:
            fd = file.fileno()
            status = os.fstat(fd)
            if os.pread(fd, 4, 0) != b"\x7fELF":
                raise _Unusable(f"{path} is not an ELF file" if status.st_size else f"{path} is empty")
            elf = read_elf(fd)
            if elf.machine != self._machine:
                raise ElfError("for another processor")
            _check_whole(path, elf)
            try:
                dynamic = read_dynamic(fd, elf)
            except OSError as error:
                raise _Unusable(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error
        names = {path, name, *([dynamic.soname] if dynamic.soname else [])}
        return LoadedFile(path, self._host.real_path(path), (status.st_dev, status.st_ino), dynamic, names, parent)

    def _preloaded(self) -> list[str]:
        names = (self._environment.preload or "").replace(":", " ").split()
        try:
            text = self._host.read_text("/etc/ld.so.preload", 64 << 10)
        except Refusal:
            return names
        lines = [line.partition("#")[0] for line in text.splitlines()]
        return names + " ".join(lines).replace(":", " ").split()

    def _cpu_levels(self) -> tuple[str, ...]:
        """The glibc-hwcaps subdirectories of this processor, best first."""
        if self._machine != 62:
            return ()
        try:
            text = self._host.read_start("/proc/cpuinfo", 16 << 10).decode("ascii", "replace")
        except Refusal:
            return ()
        flags = set(processor(text).flags)
        found: list[str] = []
        for name, wanted in LEVELS:
            if not wanted <= flags:
                break
            found.insert(0, name)
        return tuple(found)

    def _read_cache(self) -> list[CachedLibrary]:
        try:
            return read_cache(self._host.read_bytes(CACHE, CACHE_LIMIT), self._machine)
        except Refusal as refusal:
            self.gaps.append(refusal.gap("loader", "ldconfig"))
        except ValueError as error:
            self.gaps.append(Gap("loader", f"{CACHE}: {error}", "ldconfig"))
        return []


def _check_whole(path: str, elf: Elf) -> None:
    """The loader maps what the headers promise and is killed by SIGBUS where the file ends before that."""
    end = max((part.offset + part.file_size for part in elf.segments if part.type == PT_LOAD), default=0)
    if end > elf.size:
        raise _Unusable(f"{path} is cut short: {elf.size} bytes of {end}")

"""Which installed package a shared library belongs to: pip's RECORD files and conda's conda-meta.

The site-packages folder is found from the library's own path, never from this interpreter's: the analyser may run in
another environment than the job. Packages whose name resembles the path are read first, the rest only when those do not
list the file. What was read is kept in the user's cache, valid as long as each RECORD keeps its size and time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.parsers import dist_info

_PARENTS = 12  # folders looked at above a library
_RECORD_LIMIT = 64 << 20


class Claim(msgspec.Struct, frozen=True):
    """A package that lists the file. size: bytes, as installed; sha256: base64 without padding."""

    package: str
    version: str
    kind: str  # "wheel" or "conda"
    size: int | None = None
    sha256: str | None = None


class _Seen(msgspec.Struct):
    """The shared libraries of one RECORD or conda-meta file, with the file's own size and time."""

    size: int
    mtime: int
    files: list[dist_info.RecordedFile]
    package: str
    version: str


_Reader = Callable[[bytes], _Seen]


class InstalledPackages:
    """Look-ups on one machine, remembered."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._names: dict[str, list[str]] = {}
        self._folders: dict[str, _PackageFolder] = {}

    def claims(self, path: str) -> list[Claim]:
        """Every package that lists `path`; several where packages overwrite each other (nvidia's cu11 and cu12)."""
        for folder in self._site_packages(path):
            if found := self._folder(folder, "wheel").claims(path):
                return found
        prefix = self.conda_prefix(path)
        return self._folder(prefix, "conda").claims(path) if prefix else []

    def conda_prefix(self, path: str) -> str | None:
        """The conda environment that `path` lies in."""
        return next((parent for parent in _parents(path) if "conda-meta" in self._list(parent)), None)

    def save(self) -> None:
        """Keep what was read for the next look-up. A cache that cannot be written costs time, nothing else."""
        for folder in self._folders.values():
            folder.save()

    def _site_packages(self, path: str) -> Iterator[str]:
        for parent in _parents(path):
            if any(name.endswith(".dist-info") for name in self._list(parent)):
                yield parent
                return
            if parent.endswith("/lib"):
                # A wheel's data files land in the prefix: intel-openmp's RECORD lists "../../libiomp5.so".
                for name in self._list(parent):
                    if name.startswith("python3") and self._list(f"{parent}/{name}/site-packages"):
                        yield f"{parent}/{name}/site-packages"

    def _list(self, folder: str) -> list[str]:
        if folder not in self._names:
            try:
                self._names[folder] = self._host.names(folder)
            except Refusal:
                self._names[folder] = []
        return self._names[folder]

    def _folder(self, folder: str, kind: str) -> _PackageFolder:
        if folder not in self._folders:
            where = f"{folder}/conda-meta" if kind == "conda" else folder
            self._folders[folder] = _PackageFolder(self._host, folder, kind, self._list(where))
        return self._folders[folder]


class _PackageFolder:
    """The packages of one site-packages folder or one conda environment."""

    def __init__(self, host: Host, folder: str, kind: str, names: list[str]) -> None:
        self._host = host
        self._folder = folder
        self._kind = kind
        self._names = names
        self._cache_name = f"packages-{hashlib.sha256(folder.encode()).hexdigest()[:24]}.json"
        self._cached = self._load()
        self._owners: dict[str, list[Claim]] = {}
        self._read: set[str] = set()
        self._changed = False

    def claims(self, path: str) -> list[Claim]:
        for names in self._by_resemblance(path):
            for name in names:
                self._take(name)
            if path in self._owners:
                return self._owners[path]
        return []

    def _by_resemblance(self, path: str) -> Iterator[list[str]]:
        """Packages to read, likeliest first: "nvidia/cuda_runtime/lib/..." is probably nvidia_cuda_runtime_cu12."""
        if self._kind == "conda":
            yield self._names
            return
        parts = os.path.relpath(path, self._folder).split("/")
        first = dist_info.normalized(parts[0].split(".")[0])
        both = dist_info.normalized("-".join(parts[:2])) if len(parts) > 2 else first
        for prefix in (both, first, ""):
            yield [name for name in self._names if dist_info.normalized(name).startswith(prefix)]

    def _take(self, name: str) -> None:
        if name in self._read:
            return
        self._read.add(name)
        seen = self._wheel(name) if self._kind == "wheel" else self._conda(name)
        for file in seen.files if seen else []:
            assert seen is not None
            path = os.path.normpath(f"{self._folder}/{file.path}")
            claim = Claim(seen.package, seen.version, self._kind, file.size, file.sha256)
            self._owners.setdefault(path, []).append(claim)

    def _wheel(self, name: str) -> _Seen | None:
        parsed = dist_info.name_and_version(name)
        if parsed is None:
            return None

        def read(text: bytes) -> _Seen:
            files = dist_info.shared_objects(text.decode("utf-8", "replace"))
            return _Seen(0, 0, files, dist_info.normalized(parsed[0]), parsed[1])

        return self._through_cache(f"{name}/RECORD", read)

    def _conda(self, name: str) -> _Seen | None:
        if not name.endswith(".json"):
            return None

        def read(text: bytes) -> _Seen:
            package = dist_info.conda_package(text)
            files = [dist_info.RecordedFile(path) for path in package.files if ".so" in path]
            return _Seen(0, 0, files, package.name, package.version)

        return self._through_cache(f"conda-meta/{name}", read)

    def _through_cache(self, name: str, read: _Reader) -> _Seen | None:
        path = f"{self._folder}/{name}"
        try:
            status = self._host.stat(path)
            seen = self._cached.get(name)
            if seen and (seen.size, seen.mtime) == (status.st_size, status.st_mtime_ns):
                return seen
            seen = read(self._host.read_bytes(path, _RECORD_LIMIT))
        except (Refusal, ValueError):
            return None  # an editable or a Debian package has no RECORD; nothing is claimed
        seen = msgspec.structs.replace(seen, size=status.st_size, mtime=status.st_mtime_ns)
        self._cached[name] = seen
        self._changed = True
        return seen

    def _load(self) -> dict[str, _Seen]:
        try:
            return msgspec.json.decode(self._host.read_cache(self._cache_name), type=dict[str, _Seen])
        except (Refusal, msgspec.DecodeError):
            return {}

    def save(self) -> None:
        if not self._changed:
            return
        self._changed = False
        kept = {
            name: seen
            for name, seen in self._cached.items()
            if name.removeprefix("conda-meta/").split("/")[0] in self._names
        }
        self._host.write_cache(self._cache_name, msgspec.json.encode(kept))


def _parents(path: str) -> Iterator[str]:
    folder = os.path.dirname(path)
    for _ in range(_PARENTS):
        if folder in ("", "/"):
            return
        yield folder
        folder = os.path.dirname(folder)

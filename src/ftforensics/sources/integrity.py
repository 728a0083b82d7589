"""Are the files of torch and of the CUDA packages still those that pip installed? Compared with each RECORD.

Sizes first, for all: that takes a tenth of a second and finds an interrupted download, a full disk, two packages that
overwrite each other. Contents on request: they are gigabytes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.software import BrokenFile, Software
from ftforensics.parsers import dist_info
from ftforensics.parsers.record_file import recorded_files
from ftforensics.sources.file_digest import record_sha256

# What runs on the GPU or decides what does. "pytorch-triton": its name in nightly builds.
_PACKAGES = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton")
_PREFIXES = ("nvidia-", "cuda-")
_NOT_CUDA = ("nvidia-ml-py",)

# Images are slimmed by removing what no run loads, caches are rewritten by Python: their absence is no damage.
_NEVER_LOADED = (".pyc", ".pyi", ".h", ".hpp", ".cuh", ".inl", ".a", ".cmake", ".md", ".rst", ".txt", ".pdb")
_RECORD_LIMIT = 64 << 20  # bytes; torch's has 2 MB
_BROKEN_LIMIT = 200  # files told; a package whose folder is gone has 15,000

Progress = Callable[[int, int], None]  # bytes hashed, bytes to hash


class _Listed(msgspec.Struct, frozen=True):
    package: str
    version: str
    path: str
    size: int | None
    sha256: str | None
    shared: bool  # other packages list the same path

    @property
    def library(self) -> bool:
        return ".so" in os.path.basename(self.path)


def verify(host: Host, software: Software, *, hash_files: bool = True, progress: Progress | None = None) -> Software:
    """`software` with `broken`, `checked` and `verified` filled in.

    hash_files: read every byte too (seconds for a CUDA stack); without it only absence and sizes are seen, which is
    enough for `verified`: what is said about a file is true, a change that keeps the size is not seen.
    """
    listed: list[_Listed] = []
    gaps: list[Gap] = []
    found = 0
    for folder in software.site_packages:
        try:
            names = host.names(folder)
        except Refusal as refusal:
            gaps.append(refusal.gap("packages"))
            continue
        for name in names:
            parsed = dist_info.name_and_version(name)
            if parsed is None or not _wanted(parsed[0]):
                continue
            found += 1
            try:
                record = host.read_text(f"{folder}/{name}/RECORD", _RECORD_LIMIT)
            except Refusal as refusal:
                gaps.append(refusal.gap("packages", "only what pip installed has a RECORD to compare with"))
                continue
            listed += _files(folder, *parsed, record)
    listed = _marked(listed)
    broken, intact = _by_size(host, listed)
    if hash_files:
        broken += _by_content(host, intact, progress)
    broken = _sorted(_forgiven(broken, listed))
    if len(broken) > _BROKEN_LIMIT:
        gaps.append(Gap("packages", f"{len(broken) - _BROKEN_LIMIT} more files differ from their RECORD"))
    if not found:
        gaps.append(Gap("packages", "no torch and no CUDA package with a RECORD to compare with"))
    return msgspec.structs.replace(
        software,
        broken=[BrokenFile(file.package, file.version, file.path, how) for file, how in broken[:_BROKEN_LIMIT]],
        checked=len(listed),
        verified=bool(listed),
        gaps=[*software.gaps, *gaps],
    )


def _wanted(package: str) -> bool:
    return (package in _PACKAGES or package.startswith(_PREFIXES)) and package not in _NOT_CUDA


def _files(folder: str, package: str, version: str, record: str) -> list[_Listed]:
    """What a run may load, inside the environment: a RECORD is only text, and may name any path."""
    # .../lib/python3.11/site-packages: data files land in the prefix, three folders up (sysconfig, "data").
    prefix = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    found = []
    for file in recorded_files(record):
        path = os.path.normpath(f"{folder}/{file.path}")
        outside = not path.startswith(f"{folder}/")
        never = path.endswith(_NEVER_LOADED) or "/include/" in path or ".dist-info/" in file.path
        if never or file.path.startswith("/"):
            continue
        # Scripts in bin/ are rewritten when an environment is moved; only libraries count there.
        if outside and not (path.startswith(f"{prefix}/") and ".so" in os.path.basename(path)):
            continue
        found.append(_Listed(package, version, path, file.size, file.sha256, shared=False))
    return found


def _marked(listed: list[_Listed]) -> list[_Listed]:
    times = Counter(file.path for file in listed)
    return [msgspec.structs.replace(file, shared=True) if times[file.path] > 1 else file for file in listed]


def _by_size(host: Host, listed: Iterable[_Listed]) -> tuple[list[tuple[_Listed, str]], list[_Listed]]:
    broken: list[tuple[_Listed, str]] = []
    intact: list[_Listed] = []
    for file in listed:
        try:
            size = host.stat(file.path).st_size
        except Refusal as refusal:
            if refusal.absent and file.size == 0 and file.path.endswith("/__init__.py"):
                # Without it the folder is a namespace package, which works as well. Most of NVIDIA's packages list the
                # same nvidia/__init__.py, and installing one again takes it away (seen with nvidia-cudnn-cu12
                # 9.10.2.21, which has none).
                continue
            broken.append((file, "missing" if refusal.absent else refusal.reason))
            continue
        if file.size is not None and size != file.size:
            broken.append((file, f"{size} bytes, {file.size} as installed"))
        else:
            intact.append(file)
    return broken, intact


def _by_content(host: Host, files: list[_Listed], progress: Progress | None) -> list[tuple[_Listed, str]]:
    """Libraries first: when somebody interrupts, what matters most has been seen."""
    broken = []
    digests: dict[str, str | None] = {}
    total = sum(file.size or 0 for file in files if file.sha256)
    done = 0
    for file in sorted(files, key=lambda file: not file.library):
        if file.sha256 is None:
            continue
        if file.path not in digests:
            digests[file.path] = record_sha256(host, file.path)
        if digests[file.path] is None:
            broken.append((file, "cannot be read"))
        elif digests[file.path] != file.sha256:
            broken.append((file, "other content"))
        done += file.size or 0
        if progress:
            progress(done, total)
    return broken


def _forgiven(broken: list[tuple[_Listed, str]], listed: list[_Listed]) -> list[tuple[_Listed, str]]:
    """All nvidia packages list `nvidia/__init__.py`, and the last one installed wins: a file that several packages
    list is damaged only when it fits none of them. Not so a library: of two packages that overwrite each other's
    libraries (cu11 and cu12 used the same paths), one has lost."""
    bad = Counter(file.path for file, _ in broken)
    times = Counter(file.path for file in listed)
    return [one for one in broken if one[0].library or not one[0].shared or bad[one[0].path] == times[one[0].path]]


def _sorted(broken: list[tuple[_Listed, str]]) -> list[tuple[_Listed, str]]:
    return sorted(broken, key=lambda one: (not one[0].library, one[0].package, one[0].path))

"""The CUDA, torch and runtime libraries of a process: which file, whose, which version, how many of each.

From mapped paths, in falling order of trust: the package that lists the file, while the file is still what it
installed; what the library says about itself (nvJitLink's exported names, NCCL's text, NVRTC's neighbour, torch's
version.py); the version in the file's name. A version is never guessed: cuDNN and the CUDA runtime carry none in their
bytes, and the major number in a SONAME is no version.
"""

from __future__ import annotations

import mmap
import os
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.crash import Library
from ftforensics.model.software import Software
from ftforensics.parsers import dist_info, elf_text, library_name, nvidia_version
from ftforensics.parsers.torch_version import TorchVersion, torch_version
from ftforensics.sources.file_digest import record_sha256
from ftforensics.sources.installed_packages import Claim, InstalledPackages
from ftforensics.symbols.elf import Elf, ElfError, read_elf

_TEXT_LIMIT = 64 << 10  # bytes of torch/version.py
_EXPORT_NAMES_LIMIT = 8 << 20  # bytes of .dynstr
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/opt/")
# The wheels that bring a library which is not NVIDIA's, under their own version.
_BROUGHT_BY = (
    (("libmkl_",), ("mkl", "mkl-include")),
    (("libtbb",), ("tbb", "tbb4py")),
    (("libiomp5",), ("intel-openmp",)),
    (("libonnxruntime",), ("onnxruntime", "onnxruntime-gpu", "onnxruntime-training")),
    (("libdecord",), ("decord", "eva-decord")),
    (("libtensorflow_",), ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")),
    (("libarrow",), ("pyarrow",)),
    (("libnvinfer",), ("tensorrt", "tensorrt-libs", "tensorrt-cu11-libs", "tensorrt-cu12-libs", "tensorrt-cu13-libs")),
)
_WHEEL_CUDA = re.compile(r"-cu(\d+)$")


class Mapped(msgspec.Struct, frozen=True):
    """A mapped file. build_id: from the process's memory, when known; deleted: maps says so."""

    path: str
    build_id: str | None = None
    deleted: bool = False


class _OnDisk(msgspec.Struct, frozen=True):
    size: int
    elf: Elf | None


def loaded_libraries(
    mapped: Iterable[Mapped],
    host: Host,
    *,
    hash_files: bool = False,
    packages: InstalledPackages | None = None,
    search_path: str | None = None,
) -> list[Library]:
    """One Library for each mapped file of interest, in the order given.

    hash_files: compare contents with RECORD's sha256 too, not only sizes (reads every byte: seconds for a CUDA stack).
    search_path: the process's LD_LIBRARY_PATH, as it was when it was started.
    """
    packages = packages or InstalledPackages(host)
    wanted = [(file, kind) for file in _once(mapped) if (kind := library_name.kind_of(file.path))]
    copies = Counter(kind for _, kind in wanted)
    entries = _entries(search_path, host)
    found = []
    for file, kind in wanted:
        library = _examine(file, kind, host, packages, hash_files)
        found.append(
            msgspec.structs.replace(
                library,
                copies=None if kind == "extension" else copies[kind],
                cuda=_cuda(library, host),
                searched=_searched(file.path, kind, entries, host),
            )
        )
    packages.save()
    return found


def with_pins(libraries: Iterable[Library], software: Software | None) -> list[Library]:
    """The same with what the installed torch demands of each library's package."""
    demanded = software.pins if software else []
    pins = {pin.package: pin for pin in demanded if pin.by.startswith(("torch ", "pytorch "))}
    return [
        msgspec.structs.replace(library, pin=pin.version, pinned_by=pin.by)
        if library.package and (pin := pins.get(library.package))
        else library
        for library in libraries
    ]


def loaded_libcuda(libraries: Iterable[Library]) -> str | None:
    """The path of the libcuda among them, None without one."""
    return next((library.path for library in libraries if library.kind == "libcuda"), None)


def _once(mapped: Iterable[Mapped]) -> list[Mapped]:
    """A path twice means two files only when one of them was deleted since."""
    return list({(file.path, file.deleted): file for file in mapped}.values())


def _examine(file: Mapped, kind: str, host: Host, packages: InstalledPackages, hash_files: bool) -> Library:
    claims = packages.claims(file.path)
    disk = _on_disk(file.path, host)
    library = Library(
        path=file.path,
        kind=kind,
        origin=_origin(file.path, kind, claims, packages),
        build_id=file.build_id or (disk.elf.build_id if disk and disk.elf and not file.deleted else None),
    )
    gone = _replaced(file, disk)
    if gone:
        # Everything that could be read now belongs to another file than the one that was mapped.
        version = _name_version(file.path, kind)
        return msgspec.structs.replace(library, drifted=gone, version=version, how="file-name" if version else None)
    assert disk is not None
    claim, drifted = _fitting(claims, file.path, disk, host, hash_files)
    if claim and _owns(claim, kind):
        library = msgspec.structs.replace(library, package=claim.package)
        if drifted is None:
            evidence = "record" if claim.kind == "wheel" else "conda"
            return msgspec.structs.replace(library, version=claim.version, how=evidence)
    elif claim:
        library = msgspec.structs.replace(library, vendored_by=f"{claim.package} {claim.version}")
    version, how = _by_itself(file.path, kind, disk, host)
    if how == "version.py" and library.package is None:
        library = msgspec.structs.replace(library, package="torch")
    return msgspec.structs.replace(library, drifted=drifted, version=version, how=how)


def _on_disk(path: str, host: Host) -> _OnDisk | None:
    try:
        with host.open(path) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                return _OnDisk(size, read_elf(file.fileno()))
            except (ElfError, OSError):
                return _OnDisk(size, None)
    except Refusal:
        return None


def _replaced(file: Mapped, disk: _OnDisk | None) -> str | None:
    """Why the file at this path is not the one that was mapped, if so."""
    if disk is None:
        return "the file is no longer there" if not file.deleted else "deleted after it was loaded"
    if file.deleted:
        return "replaced after it was loaded"
    on_disk = disk.elf.build_id if disk.elf else None
    if file.build_id and on_disk and file.build_id != on_disk:
        return f"replaced after it was loaded: build-id {file.build_id} in memory, {on_disk} on disk"
    return None


def _fitting(
    claims: list[Claim], path: str, disk: _OnDisk, host: Host, hash_files: bool
) -> tuple[Claim | None, str | None]:
    """The claim that this file fulfils; else the first one and how the file differs from what was installed."""
    difference = None
    for claim in claims:
        drift = _drift(claim, path, disk, host, hash_files)
        if drift is None:
            return claim, None
        difference = difference or drift
    return (claims[0], difference) if claims else (None, None)


def _drift(claim: Claim, path: str, disk: _OnDisk, host: Host, hash_files: bool) -> str | None:
    installed = f"as {claim.package} {claim.version} installed it"
    if claim.size is not None and claim.size != disk.size:
        return f"{disk.size} bytes, {claim.size} {installed}"
    if hash_files and claim.sha256 and record_sha256(host, path) not in (claim.sha256, None):
        return f"other content than {installed}"
    return None


def _owns(claim: Claim, kind: str) -> bool:
    """Is the package's version the library's? Not for a private copy: torch's wheel carries a libgomp, ctranslate2's a
    libcudnn."""
    if kind == "extension":
        return True
    package = dist_info.normalized(claim.package)
    if library_name.is_torch(kind):
        return package.startswith(("torch", "pytorch", "libtorch"))
    if claim.kind == "conda":
        return not package.startswith(("torch", "pytorch", "libtorch"))
    brought = [packages for stems, packages in _BROUGHT_BY if kind.startswith(stems)]
    return package in brought[0] if brought else package.startswith(("nvidia-", "cuda-"))


def _by_itself(path: str, kind: str, disk: _OnDisk, host: Host) -> tuple[str | None, str | None]:
    """(version, how) from the file, its name and its neighbours."""
    folder = os.path.dirname(path)
    version: str | None = None
    if library_name.is_torch(kind):
        if torch := _torch_version(path, host):
            return torch.version, "version.py"
    elif kind == "libnvJitLink":
        if version := elf_text.nvjitlink_version(_exported(path, disk, host)):
            return version, "symbol"
    elif kind == "libnccl":
        if version := _nccl_text(path, disk, host):
            return version, "text"
    elif kind == "libnvrtc" and (version := elf_text.nvrtc_version(host.listed(folder))):
        return version, "sibling"
    version = _name_version(path, kind)
    return version, "file-name" if version else None


def _torch_version(path: str, host: Host) -> TorchVersion | None:
    """Of the version.py in the package whose lib folder holds the library."""
    try:
        return torch_version(host.read_text(f"{os.path.dirname(os.path.dirname(path))}/version.py", _TEXT_LIMIT))
    except Refusal:
        return None


def _cuda(library: Library, host: Host) -> str | None:
    """The CUDA version that it was built for, where something says so. Not for a file that is another one by now."""
    if library_name.is_torch(library.kind):
        torch = None if library.drifted else _torch_version(library.path, host)
        return torch.cuda if torch else None
    if library.kind == "libnccl":
        # The wheel's name says 12; NCCL says itself which minor version. It need not be torch's: 12.9 in a cu128 stack.
        text = library.version if library.how == "text" else None
        if text is None and library.drifted is None:
            text = _nccl_text(library.path, _on_disk(library.path, host), host)
        return (text or "").partition("+cuda")[2] or None
    if library.kind == "libcudart" and library.version:
        return ".".join(library.version.split(".")[:2])
    named = _WHEEL_CUDA.search(library.package or "")
    return named[1] if named else None


class _Entry(msgspec.Struct, frozen=True):
    """One folder of an LD_LIBRARY_PATH. written: as it stands there; real: with links followed."""

    written: str
    real: str
    names: list[str]


def _entries(search_path: str | None, host: Host) -> list[_Entry]:
    """The absolute ones (man ld.so: ":" or ";" between). A relative one is relative to wherever the process stood,
    which is not known."""
    found = []
    for entry in re.split("[:;]", search_path or ""):
        if entry.startswith("/"):
            try:
                real = host.real_path(entry)
                found.append(_Entry(entry, real, host.names(real)))
            except Refusal:
                continue
    return found


def _searched(path: str, kind: str, entries: list[_Entry], host: Host) -> str | None:
    """The first entry in which the loader finds this file: in it, in its glibc-hwcaps, or by a link in it."""
    folder = os.path.dirname(path)
    for entry in entries:
        if folder == entry.real or folder.startswith(f"{entry.real}/glibc-hwcaps/"):
            return entry.written
        if kind == "extension":  # found by Python, never by its SONAME
            continue
        for name in entry.names:
            try:
                if name.startswith(f"{kind}.so") and host.real_path(f"{entry.real}/{name}") == path:
                    return entry.written
            except Refusal:
                continue
    return None


def _name_version(path: str, kind: str) -> str | None:
    return nvidia_version.file_version(path) if library_name.is_driver(kind) else library_name.version_of(path)


def _exported(path: str, disk: _OnDisk, host: Host) -> list[str]:
    table = disk.elf.symbol_table("dynsym") if disk.elf else None
    if table is None:
        return []
    try:
        with host.open(path) as file:
            names = os.pread(file.fileno(), min(table.names_size, _EXPORT_NAMES_LIMIT), table.names_offset)
    except (Refusal, OSError):
        return []
    return names.decode("utf-8", "replace").split("\0")


def _nccl_text(path: str, disk: _OnDisk | None, host: Host) -> str | None:
    """The text lies in .rodata, a few MB; the rest of the 430 MB file is device code and not read."""
    section = disk.elf.section(".rodata") if disk and disk.elf else None
    if disk is None or section is None or section.offset + section.size > disk.size:
        return None
    try:
        with host.open(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = section.offset + section.size
            at = section.offset
            while (at := content.find(elf_text.NCCL_ANCHOR, at, end)) >= 0:
                if version := elf_text.nccl_version(content[at : at + 64]):
                    return version
                at += 1
    except (Refusal, OSError, ValueError):
        return None
    return None


def _origin(path: str, kind: str, claims: list[Claim], packages: InstalledPackages) -> str:
    """Where a libcuda comes from decides what it can do, so that a package that brings a stub does not hide it."""
    if library_name.is_stub(path) and kind != "extension":
        return "stubs"
    if library_name.is_driver(kind) and library_name.is_compat(path):
        return "compat"
    if claims:
        return claims[0].kind
    if packages.conda_prefix(path):
        return "conda"
    return "system" if path.startswith(_SYSTEM) else "other"

"""What is installed where a process took its torch from: packages, torch's build, the versions that torch demands.

All of it is text beside the libraries: folder names, `METADATA`, `torch/version.py`. Nothing is imported and no
interpreter of that environment is asked: it may be the broken one, and it may lie on another machine.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Library
from ftforensics.model.software import Package, Pin, Software, TorchBuild
from ftforensics.parsers import core_metadata, dist_info, library_name
from ftforensics.parsers.core_metadata import Demand
from ftforensics.parsers.torch_version import of_local_version, torch_version

MOST_PACKAGES = 5000
METADATA_START = 512 << 10  # bytes: the headers stand first, and a project's description may be long
VERSION_LIMIT = 64 << 10  # bytes of torch/version.py and of an INSTALLER

# The metapackage that torch demands from 2.11 on instead of the single nvidia packages.
METAPACKAGE = "cuda-toolkit"
# What is built for one torch and says so by an exact demand.
_COMPANIONS = ("torchvision", "torchaudio", "torchtext", "xformers", "vllm", "flash-attn", "torchao")

_PACKAGES = re.compile(r"^(/.*?/(?:site|dist)-packages)(?:/|$)")
_PYTHON = re.compile(r"/python(\d+\.\d+)(?:/|$)")


class _Found(msgspec.Struct, frozen=True):
    """A distribution in one folder. metadata: path of its METADATA, None for a conda package's own entry."""

    name: str
    version: str
    metadata: str | None = None


def read_software(
    host: Host,
    *,
    libraries: Sequence[Library] | None = None,
    prefix: str | None = None,
    site_packages: Sequence[str] | None = None,
    python: str | None = None,
    machine: str | None = None,
) -> Software:
    """libraries: what the process has loaded; they tell its site-packages folders, torch's own first. prefix: the
    environment that it was started in, for a process that has loaded nothing of it yet. site_packages: instead of both.
    python: "3.11.7"; machine: "x86_64"; else as the folders' names and this machine have them.

    Never raises: what cannot be read is a Gap in the answer. About 10 ms for 300 packages.
    """
    reader = _Reader(host)
    folders = reader.folders(libraries or (), prefix) if site_packages is None else list(site_packages)
    found = [package for folder in folders for package in reader.packages(folder)]
    conda = prefix if prefix and reader.names(f"{prefix}/conda-meta") else reader.conda_prefix(folders)
    known = {package.name for package in found}
    if conda:
        found += [package for package in reader.conda_packages(conda) if package.name not in known]
    python = python or next((m[1] for folder in folders if (m := _PYTHON.search(folder))), None)
    machine = machine or platform.machine()
    folder = reader.torch_folder(libraries or (), folders)
    torch_package = next((package for package in found if package.name in ("torch", "pytorch")), None)
    pins = reader.pins(torch_package, found, machine, python)
    return Software(
        python=python,
        machine=machine,
        prefix=prefix if prefix and (not folders or _below(prefix, folders)) else conda or _prefix(folders),
        site_packages=folders,
        packages=[Package(package.name, package.version) for package in found[:MOST_PACKAGES]],
        torch=reader.torch(folder, torch_package, pins, folders, conda),
        pins=pins,
        gaps=reader.gaps,
    )


class _Reader:
    """One look at one machine's environment. gaps: what was refused on the way."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.gaps: list[Gap] = []

    def names(self, folder: str) -> list[str]:
        try:
            return self._host.names(folder)
        except Refusal as refusal:
            if not refusal.absent:
                self.gaps.append(refusal.gap("packages"))
            return []

    def _start(self, path: str, size: int) -> str | None:
        """None when there is no such file; any other refusal is a gap too."""
        try:
            return self._host.read_start(path, size).decode("utf-8", "replace")
        except Refusal as refusal:
            if not refusal.absent:
                self.gaps.append(refusal.gap("packages"))
            return None

    def folders(self, libraries: Iterable[Library], prefix: str | None) -> list[str]:
        """The site-packages folders that the process took libraries from, torch's first."""
        found: dict[str, str] = {}  # by its real path: in a venv lib64 is a link to lib
        mine = [library for library in libraries if library.path.startswith("/")]
        for library in sorted(mine, key=lambda one: not library_name.is_torch(one.kind)):
            if folder := self._packages_folder(library.path):
                found.setdefault(self._real(folder), folder)
        if not found and prefix:
            for folder in package_folders(prefix, self.names):
                if self.names(folder):
                    found.setdefault(self._real(folder), folder)
        return list(found.values())

    def _real(self, folder: str) -> str:
        try:
            return self._host.real_path(folder)
        except Refusal:
            return folder

    def _packages_folder(self, path: str) -> str | None:
        """By its name; else the folder above that holds a dist-info, as `pip install --target` makes one."""
        if named := _PACKAGES.match(path):
            return named[1]
        parent = os.path.dirname(path)
        for _ in range(5):  # nvidia/cuda_runtime/lib/x.so lies three folders deep
            parent = os.path.dirname(parent)
            if parent in ("", "/"):
                return None
            if any(name.endswith(".dist-info") for name in self.names(parent)):
                return parent
        return None

    def packages(self, folder: str) -> list[_Found]:
        found = []
        for name in self.names(folder):
            if parsed := dist_info.name_and_version(name):
                found.append(_Found(*parsed, metadata=f"{folder}/{name}/METADATA"))
            elif parsed := dist_info.egg_name_and_version(name):
                found.append(_Found(*parsed, metadata=f"{folder}/{name}/PKG-INFO"))
        return found

    def conda_prefix(self, folders: Iterable[str]) -> str | None:
        for folder in folders:
            prefix = _prefix([folder])
            if prefix and self.names(f"{prefix}/conda-meta"):
                return prefix
        return None

    def conda_packages(self, prefix: str) -> list[_Found]:
        parsed = (dist_info.conda_name_and_version(name) for name in self.names(f"{prefix}/conda-meta"))
        return [_Found(*one) for one in parsed if one]

    def torch_folder(self, libraries: Iterable[Library], folders: Iterable[str]) -> str | None:
        """.../torch, from the libtorch that is loaded, else from the first folder that has one.

        libtorch_python first: it is what `import torch` takes from its own folder, whichever libtorch_cpu is found."""
        for library in sorted(libraries, key=lambda one: one.kind != "libtorch_python"):
            folder = os.path.dirname(library.path)
            if library_name.is_torch(library.kind) and os.path.basename(folder) == "lib" and "/torch/" in library.path:
                return os.path.dirname(folder)
        return next((f"{folder}/torch" for folder in folders if self._host.exists(f"{folder}/torch/version.py")), None)

    def pins(self, torch: _Found | None, found: list[_Found], machine: str, python: str | None) -> list[Pin]:
        """What torch demands in one version, through its metapackage too; what its companions demand of torch."""
        pins: list[Pin] = []
        if torch:
            for demand in self._demands(torch, machine, python):
                pins.append(_pin(demand, torch, found))
                if demand.name == METAPACKAGE and (meta := _named(METAPACKAGE, found)):
                    parts = self._demands(meta, machine, python, demand.extras)
                    pins += [_pin(part, torch, found) for part in parts]
                elif demand.name == METAPACKAGE:
                    self.gaps.append(
                        Gap(
                            "packages",
                            f"torch demands {METAPACKAGE}, which is not installed: what it pins is not known",
                        )
                    )
        for companion in found:
            if companion.name in _COMPANIONS:
                wanted = (demand for demand in self._demands(companion, machine, python) if demand.name == "torch")
                pins += [_pin(demand, companion, found) for demand in wanted]
        return pins

    def _demands(self, package: _Found, machine: str, python: str | None, extras: Iterable[str] = ()) -> list[Demand]:
        text = self._start(package.metadata, METADATA_START) if package.metadata else None
        return core_metadata.demands(text, machine, python, extras) if text else []

    def torch(
        self, folder: str | None, package: _Found | None, pins: list[Pin], folders: list[str], conda: str | None
    ) -> TorchBuild | None:
        if folder is None and package is None:
            return None
        origin = self._origin(folder, package, folders, conda)
        text = self._start(f"{folder}/version.py", VERSION_LIMIT) if folder else None
        if text and (said := torch_version(text)):
            return TorchBuild(said.version, said.cuda, said.hip, folder, "version.py", origin)
        if package is None:
            self.gaps.append(Gap("packages", f"{folder}/version.py: torch's version is not readable there"))
            return None
        if cuda := _cuda_of(pins):
            return TorchBuild(package.version, cuda, None, folder, "pins", origin)
        cuda, hip = of_local_version(package.version)
        how = "local version" if "+" in package.version else None
        return TorchBuild(package.version, cuda, hip, folder, how, origin)

    def _origin(self, folder: str | None, package: _Found | None, folders: list[str], conda: str | None) -> str:
        """ "wheel": a dist-info beside torch that conda did not write; a checkout's torch lies in no such folder."""
        if package is None or (folder is not None and os.path.dirname(folder) not in folders):
            return "other"
        if package.metadata is None:
            return "conda"
        if not package.metadata.endswith(".dist-info/METADATA"):
            return "conda" if conda else "other"
        installer = self._start(f"{os.path.dirname(package.metadata)}/INSTALLER", VERSION_LIMIT) or ""
        return "conda" if installer.strip() == "conda" else "wheel"


def _pin(demand: Demand, by: _Found, found: list[_Found]) -> Pin:
    """A demand that is met has the installed version as its own: "13.0.96.*" is met by 13.0.96, "2.9.1" by
    "2.9.1+cu128", and a reader compares two texts. Of two dist-infos of one name, as an interrupted upgrade leaves
    them, the fitting one counts."""
    versions = [package.version for package in found if package.name == demand.name]
    fitting = next((version for version in versions if demand.met_by(version)), None)
    installed = fitting or (versions[0] if versions else None)
    return Pin(demand.name, fitting or demand.version, f"{by.name} {by.version}", installed)


def _named(name: str, found: list[_Found]) -> _Found | None:
    return next((package for package in found if package.name == name), None)


def _cuda_of(pins: Iterable[Pin]) -> str | None:
    """ "12.8" of the runtime or the metapackage that torch demands."""
    for pin in pins:
        runtime = re.fullmatch(r"nvidia-cuda-runtime(?:-cu\d+)?", pin.package)
        if pin.by.startswith(("torch ", "pytorch ")) and (runtime or pin.package == METAPACKAGE):
            return ".".join(pin.version.split(".")[:2])
    return None


def _below(prefix: str, folders: Iterable[str]) -> bool:
    """Did the process take any of its packages from the environment that it was started in?"""
    return any(folder.startswith(f"{prefix.rstrip('/')}/") for folder in folders)


def package_folders(prefix: str, names: Callable[[str], list[str]]) -> Iterator[str]:
    """Where packages may lie in a Python environment; Debian's own Python has two such folders. names: of a folder."""
    for lib in ("lib", "lib64", "local/lib"):
        for name in names(f"{prefix}/{lib}"):
            if name.startswith("python3"):
                yield f"{prefix}/{lib}/{name}/site-packages"
                yield f"{prefix}/{lib}/{name}/dist-packages"


def _prefix(folders: Iterable[str]) -> str | None:
    """/v of /v/lib/python3.11/site-packages."""
    for folder in folders:
        if found := re.match(r"^(.*?)/(?:local/)?lib(?:64)?/python3[^/]*/(?:site|dist)-packages$", folder):
            return found[1] or "/"
    return None

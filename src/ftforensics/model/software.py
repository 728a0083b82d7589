"""The software that a process ran on: installed packages, the torch among them, what it pins, what of it is damaged."""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Gap


class Package(msgspec.Struct, frozen=True):
    """An installed distribution. name: as the index compares it (PEP 503); local: the part of the version behind "+"
    stays in `version` ("2.5.1+cu121")."""

    name: str
    version: str


class Pin(msgspec.Struct, frozen=True):
    """A distribution that another one demands in exactly this version: "torch 2.9.1" wants nvidia-cudnn-cu12 9.10.2.21.
    installed: the version that is there, None when it is missing."""

    package: str
    version: str
    by: str
    installed: str | None = None


class TorchBuild(msgspec.Struct, frozen=True):
    """The installed torch, read as text: torch/version.py and the metadata beside it.

    version: with its local part where it has one ("2.9.1+cu128"; wheels of PyPI have none); cuda: the CUDA version that
    it was built for ("12.8"), None for a build without; how: what told that ("version.py", "pins", "local version");
    origin: "wheel", "conda" or "other" (built here)."""

    version: str
    cuda: str | None = None
    hip: str | None = None
    folder: str | None = None  # .../site-packages/torch
    how: str | None = None
    origin: str | None = None


class BrokenFile(msgspec.Struct, frozen=True):
    """A file that differs from what its package's RECORD says. how: "missing", "12 bytes, 345 as installed", "other
    content"."""

    package: str
    version: str
    path: str
    how: str


class MissingSymbols(msgspec.Struct, frozen=True):
    """An extension that needs names which the torch beside it does not export. names: mangled, at most 20; count: how
    many there are; abi: "pre-cxx11" or "cxx11" when the names show that it was built with the other C++ string ABI."""

    path: str
    package: str | None = None
    version: str | None = None
    names: list[str] = []
    count: int = 0
    abi: str | None = None


class Software(msgspec.Struct, frozen=True):
    """verified: the files of torch and the nvidia packages were compared with their RECORDs (`broken` means something
    then); checked: how many files that were; missing: of the extensions that were mapped or would be."""

    python: str | None = None  # "3.11.7"
    machine: str | None = None
    prefix: str | None = None
    site_packages: list[str] = []
    packages: list[Package] = []
    torch: TorchBuild | None = None
    pins: list[Pin] = []
    broken: list[BrokenFile] = []
    missing: list[MissingSymbols] = []
    verified: bool = False
    checked: int = 0
    gaps: list[Gap] = []

"""Installed Python packages as text: `*.dist-info` names and RECORD files, conda's `conda-meta/*.json`.

Formats: packaging.python.org, "Recording installed projects"; conda's `conda-meta` (name, version, files).
"""

from __future__ import annotations

import re

import msgspec


class RecordedFile(msgspec.Struct, frozen=True):
    """path: as written, relative to the site-packages folder; size: bytes; sha256: base64 without padding."""

    path: str
    size: int | None = None
    sha256: str | None = None


class CondaPackage(msgspec.Struct, frozen=True):
    name: str
    version: str
    files: list[str] = []


# RECORD is CSV, but a name with a comma or quote in it is never a shared library's; a line-wise scan of torch's 2 MB
# takes 10 ms, the csv module ten times that.
_SHARED_OBJECT = re.compile(r"^([^,\n\"]*\.so(?:\.[^,\n/\"]*)?),([^,\n]*),(\d*)\r?$", re.MULTILINE)
_EGG = re.compile(r"^([A-Za-z0-9][\w.]*?)-([^-/]+)(?:-py\d[\d.]*)?\.egg-info$")


def name_and_version(folder: str) -> tuple[str, str] | None:
    """("nvidia-cuda-runtime-cu12", "12.8.90") of "nvidia_cuda_runtime_cu12-12.8.90.dist-info", else None."""
    stem, _, suffix = folder.rpartition(".")
    name, _, version = stem.rpartition("-")
    if suffix != "dist-info" or not name or not version:
        return None
    return normalized(name), version


def egg_name_and_version(name: str) -> tuple[str, str] | None:
    """("numpy", "1.26.4") of "numpy-1.26.4-py3.11.egg-info" or "numpy-1.26.4.egg-info", as setuptools, Debian and conda
    recipes leave them; None for a checkout's "torch.egg-info", which says no version."""
    found = _EGG.match(name)
    return (normalized(found[1]), found[2]) if found else None


def conda_name_and_version(name: str) -> tuple[str, str] | None:
    """("pytorch-cuda", "12.1") of "pytorch-cuda-12.1-ha16c6d3_6.json": the build stands last and has no dash."""
    parts = name.removesuffix(".json").rsplit("-", 2)
    if not name.endswith(".json") or len(parts) != 3 or not all(parts):
        return None
    return normalized(parts[0]), parts[1]


def normalized(name: str) -> str:
    """A project name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def shared_objects(record: str) -> list[RecordedFile]:
    """The shared libraries that a RECORD lists."""
    found = []
    for path, digest, size in _SHARED_OBJECT.findall(record):
        algorithm, _, value = digest.partition("=")
        found.append(
            RecordedFile(
                path=path, size=int(size) if size else None, sha256=value if algorithm == "sha256" and value else None
            )
        )
    return found


def conda_package(text: bytes) -> CondaPackage:
    """One conda-meta file. Raises ValueError when it is something else."""
    try:
        return msgspec.json.decode(text, type=CondaPackage)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a conda package: {error}") from error

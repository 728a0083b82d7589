"""Do the loaded CUDA and torch libraries belong together? Asked after a crash of what was mapped, by `check` of what
would be."""

from __future__ import annotations

import msgspec

from ftforensics.model.crash import Library
from ftforensics.model.software import Pin, Software


class Mix(msgspec.Struct, frozen=True):
    """Two or more sets of one thing. what: "cuDNN", "NCCL", "CUDA runtime", "OpenMP", ...; libraries: one of each
    place; private: one of them is a wheel's renamed private copy, whose names cannot meet the others'."""

    what: str
    libraries: list[Library]
    private: bool = False


class Shadow(msgspec.Struct, frozen=True):
    """A library from outside the environment, loaded in place of the one that a wheel brought. wheel: path or package
    of that one; by: the LD_LIBRARY_PATH entry that did it, where that is known."""

    library: Library
    wheel: str
    by: str | None = None


class Companion(msgspec.Struct, frozen=True):
    """A package built for another torch than the one that is there. wanted: the torch that it goes with."""

    package: str
    version: str
    torch: str
    wanted: str | None = None
    how: str = ""


def mixes(libraries: list[Library]) -> list[Mix]:
    """cuDNN (with its parts), NCCL, nvJitLink, cuBLAS, CUDA runtime of two majors, torch itself, from two places."""
    raise NotImplementedError


def openmp_mix(libraries: list[Library]) -> Mix | None:
    raise NotImplementedError


def drifted_pins(software: Software | None, libraries: list[Library]) -> list[Pin]:
    """Pins of torch that another version than the demanded one is installed for."""
    raise NotImplementedError


def shadows(software: Software | None, libraries: list[Library]) -> list[Shadow]:
    raise NotImplementedError


def wrong_companions(software: Software | None, libraries: list[Library]) -> list[Companion]:
    """torchvision, torchaudio and CUDA extensions whose own build or pair table names another torch."""
    raise NotImplementedError
